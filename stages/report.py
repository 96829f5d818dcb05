"""report: every cycle -> the learning curve, the queries as pictures, and a page to look at."""

from pathlib import Path

import pyarrow as pa
from pydantic import PositiveInt

from codline.core.errors import DataError
from codline.core.files import read_json, whole, whole_folder, write_text
from codline.core.params import Section
from codline.data import dataset_info, image_store, tables
from codline.report import charts, gallery, page, query_images
from stages.runner import In, Out, run

SHOWN = ("annotations.parquet", "outputs.parquet")


class Params(Section):
    gallery: PositiveInt  # images of each query to show


def report(params: Params, *, cycles: list[str], images: In, dataset: In, pool: In, campaign: In, report: Out) -> None:
    facts, store = dataset_info.opened(dataset), image_store.opened(images)
    done = [finished(campaign / name, facts.classes) for name in cycles if (campaign / name / "metrics.json").exists()]
    if not done:
        raise DataError(
            f"{campaign}: found no metrics.json of any cycle, expected at least {campaign / cycles[0] / 'metrics.json'}; run dvc repro"
        )
    confusion = page.counts(done[-1].metrics, campaign / done[-1].name / "predictions.csv", facts.classes)
    story = page.Campaign(done, cycles, facts.classes, facts.shape, tables.count(pool, tables.POOL), confusion)
    figures = page.figures(story)
    drawings = {name: charts.svg(figure) for name, figure in figures.items()}
    for_phones = {f"{name}-narrow": charts.svg(figure) for name, figure in page.figures(story, charts.NARROW).items()}
    shown = {
        cycle.name: query_images.shown(
            cycle.query.ids[: params.gallery], store.take, facts, *(campaign / cycle.name / name for name in SHOWN)
        )
        for cycle in done
        if cycle.query
    }

    with whole_folder(report) as part:
        for name, figure in figures.items():
            write(part / f"{name}.png", charts.png(figure))
            write_text(part / f"{name}.svg", drawings[name])
        for cycle in done:
            if cycle.query:
                write(
                    part / "gallery" / f"{cycle.name}.png",
                    gallery.sheet(shown[cycle.name], cycle.query.captions[: params.gallery]),
                )
        tables.write_csv(
            pa.Table.from_pylist([cycle.row for cycle in done], schema=tables.CURVE), tables.CURVE, part / "curve.csv"
        )
        write_text(part / "index.html", page.render(story, drawings | for_phones, shown))


def finished(folder: Path, classes: list[str]) -> page.Cycle:
    """A cycle that was evaluated; it may not have asked anything, and the truth may not be known."""
    metrics = page.opened(folder / "metrics.json", page.Metrics)
    if list(metrics.per_class_accuracy) != classes:
        raise DataError(
            f"{folder / 'metrics.json'}: found classes {', '.join(metrics.per_class_accuracy)}, expected {', '.join(classes)}"
        )
    known = (folder / "diagnostics.json").exists() and "mean_loss" in read_json(folder / "diagnostics.json")
    diagnostics = page.opened(folder / "diagnostics.json", page.Diagnostics) if known else None
    training = tables.read_csv(folder / "training.csv", tables.TRAINING)
    losses = {
        "task loss": training["task_loss"].to_numpy(),
        "unsupervised loss": training["unsupervised_loss"].to_numpy(),
    }
    return page.Cycle(
        folder.name,
        metrics,
        diagnostics,
        losses,
        asked(folder, classes) if (folder / "query.parquet").exists() else None,
    )


def asked(folder: Path, classes: list[str]) -> page.Query:
    query = tables.read(folder / "query.parquet", tables.QUERY).sort_by("rank")
    answers = query_images.answered(folder / "annotations.parquet")
    labels = [query_images.named(answers[i], classes) if i in answers else None for i in query["id"].to_pylist()]
    wrong = read_json(folder / "cost.json").get("wrong") or 0 if answers else 0
    return page.Query(query["id"].to_numpy(), query["score"].to_numpy(), labels, wrong)


def write(path: Path, data: bytes) -> None:
    with whole(path) as part:
        part.write_bytes(data)


if __name__ == "__main__":
    run(report)
