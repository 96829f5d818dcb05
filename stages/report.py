"""report: learning curve, charts, query galleries and an HTML page of all evaluated cycles."""

import shutil

import pyarrow as pa
from pydantic import PositiveInt

from codline.core.campaign_setup import CampaignSetup
from codline.core.files import atomic_directory, atomic_write, write_text
from codline.core.params import Section
from codline.data import dataset_info, image_store, tables
from stages.runner import In, Out, run


class Params(Section):
    gallery: PositiveInt  # images of each query to show


def report(
    params: Params, *, seed: int, setup: CampaignSetup, cycles: list[str], images: In, dataset: In, files: In,
    pool: In, campaign: In, report: Out, best_model: Out,
) -> None:  # fmt: skip
    from codline.report import chart_layout, gallery, page
    from codline.report.query_images import query_pictures
    from codline.report.results import read_campaign

    info, take = dataset_info.read_dataset_info(dataset), image_store.open_image_store(images).take
    results = read_campaign(campaign, setup, seed, cycles, info, tables.count_rows(pool, tables.POOL), files)
    figures, narrow = page.draw_charts(results), page.draw_charts(results, chart_layout.NARROW)
    drawings = {name: chart_layout.to_svg(figure) for name, figure in figures.items()}
    narrow_drawings = {f"{name}-narrow": chart_layout.to_svg(figure) for name, figure in narrow.items()}
    queries = {cycle.name: cycle.query for cycle in results.cycles if cycle.query}
    pictures = {
        cycle: query_pictures(
            query.ids[: params.gallery],
            take,
            info,
            annotations=campaign / cycle / "annotations.parquet",
            outputs=campaign / cycle / "outputs.parquet",
        )
        for cycle, query in queries.items()
    }
    pngs = {f"{name}.png": chart_layout.to_png(figure) for name, figure in figures.items()}
    for cycle, query in queries.items():
        pngs[f"gallery/{cycle}.png"] = gallery.image_grid(pictures[cycle], query.grid_captions[: params.gallery])
    curve = pa.Table.from_pylist([cycle.curve_row for cycle in results.cycles], schema=tables.CURVE)

    with atomic_directory(report) as directory:
        for name, png in pngs.items():
            with atomic_write(directory / name) as part:
                part.write_bytes(png)
        for name, drawing in drawings.items():
            write_text(directory / f"{name}.svg", drawing)
        tables.write_csv(curve, tables.CURVE, directory / "curve.csv")
        html = page.render(results, drawings | narrow_drawings, pictures, "/".join(best_model.parts[-2:]))
        write_text(directory / "index.html", html)
    with atomic_write(best_model) as part:
        shutil.copyfile(campaign / results.best.name / "model.safetensors", part)


if __name__ == "__main__":
    run(report)
