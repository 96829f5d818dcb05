"""report: a page that stands alone, the same bytes every time, and never half of either."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from codline.core.errors import DataError
from codline.core.files import write_json
from codline.data import image_store, tables
from codline.report import charts
from codline.report.charts import WIDE, free_side, spaced
from codline.report.page import Campaign, trends
from stages.report import Params, finished, report

CLASSES = ["cod", "haddock & <chips>", "$ling$"]
CYCLES = ["c1", "c2", "c3"]
POOL, START, BUDGET = 20, 4, 5


def campaign_in(root: Path, *, evaluated: int = 3, truth_known: bool = True) -> dict[str, Path]:
    """A campaign of three cycles over twenty plain images, image i of brightness 10 i; returns what the stage is told."""
    everyone = np.arange(POOL)
    image_store.write(
        root / "images.arrow", everyone, np.repeat(everyone * 10, 16).astype(np.uint8).reshape(POOL, 1, 4, 4)
    )
    write_json(
        root / "dataset.json",
        {"task": "classification", "classes": CLASSES, "shape": [1, 4, 4], "mean": [0.5], "std": [0.5]},
    )
    tables.write(pa.table([everyone, ["0" * 64] * POOL], schema=tables.POOL), tables.POOL, root / "pool.parquet")
    for i, name in enumerate(CYCLES[:evaluated]):
        evaluated_cycle(root / "cycles" / name, i)
        if name != CYCLES[-1]:
            query_cycle(root / "cycles" / name, i, truth_known)
    inputs = {
        "images": "images.arrow",
        "dataset": "dataset.json",
        "pool": "pool.parquet",
        "campaign": "cycles",
        "report": "report",
    }
    return {name: root / file for name, file in inputs.items()}


def evaluated_cycle(folder: Path, i: int) -> None:
    accuracies = {"cod": 1.0, CLASSES[1]: 0.5 + 0.2 * i, CLASSES[2]: 0.5}
    metrics = {"labels": START + BUDGET * i, "accuracy": 0.6 + 0.1 * i, "loss": 1.0 / (i + 1), "calibration_error": 0.1}
    write_json(folder / "metrics.json", metrics | {"per_class_accuracy": accuracies})
    predictions = pa.table(
        [[90, 91, 92, 93], ["cod", "cod", *CLASSES[1:]], ["cod", CLASSES[1], *CLASSES[1:]], [0.9] * 4],
        schema=tables.PREDICTIONS,
    )
    tables.write_csv(predictions, tables.PREDICTIONS, folder / "predictions.csv")
    training = pa.table([[1, 2], [0.1, 0.1], [1.0, 0.5 / (i + 1)], [0.0, 0.0], [0.5, 0.9]], schema=tables.TRAINING)
    tables.write_csv(training, tables.TRAINING, folder / "training.csv")


def query_cycle(folder: Path, i: int, truth_known: bool) -> None:
    """Asks for five images from the brightest down; the rows of its files lie in another order than the ranks."""
    ids = wanted(i)[::-1]
    tables.write(
        pa.table([ids, np.arange(BUDGET, 0, -1), np.linspace(0.1, 0.9, BUDGET)], schema=tables.QUERY),
        tables.QUERY,
        folder / "query.parquet",
    )
    annotations = pa.table([ids, ids % len(CLASSES), ["simulated"] * BUDGET], schema=tables.ANNOTATIONS)
    tables.write(annotations, tables.ANNOTATIONS, folder / "annotations.parquet")
    write_json(folder / "cost.json", {"asked": BUDGET, "answered": BUDGET, "wrong": i})
    if truth_known:
        write_json(folder / "diagnostics.json", told(i))


def told(i: int) -> dict[str, Any]:
    spearman = (
        {"spearman": None, "spearman_low": None, "spearman_high": None}
        if i
        else {"spearman": 0.5, "spearman_low": 0.41, "spearman_high": 0.58}
    )
    means = {"mean_score": 0.4, "mean_discrepancy": 0.9 - 0.8 * i, "mean_loss": 0.5, "mean_loss_of_query": 1.0}
    curves = {"bucket_losses": [1.0, 0.5, 0.0], "capture": np.linspace(0.5, 1, 100).tolist(), "capture_gain": 0.5}
    steps = {
        "squared_gradient_norm": 0.5 / (i + 1),
        "tod": {"10": {"capture": [0.2, 1.0], "capture_gain": 0.1}, "5": {"capture": [0.1, 1.0], "capture_gain": 0.0}},
    }
    return {
        **spearman,
        **means,
        **curves,
        **steps,
        "overlap": {"least_confidence": 0.25, **({"cod": 1.0} if i else {})},
        "classes_in_query": [2, 2, 1],
    }


def wanted(i: int) -> np.ndarray:
    return np.arange(POOL - 1 - BUDGET * i, POOL - 1 - BUDGET * (i + 1), -1)


def reported(paths: dict[str, Path], gallery: int = 4) -> dict[str, bytes]:
    """Run the stage and return every file it left, by name."""
    report(Params(gallery=gallery), cycles=CYCLES, **paths)
    return {
        str(path.relative_to(paths["report"])): path.read_bytes()
        for path in sorted(paths["report"].rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, bytes]]:
    paths = campaign_in(tmp_path_factory.mktemp("finished"))
    return paths, reported(paths)


@pytest.fixture(scope="module")
def files(done: tuple[dict[str, Path], dict[str, bytes]]) -> dict[str, bytes]:
    return done[1]


def test_two_runs_give_the_same_bytes_and_leave_nothing_else(
    done: tuple[dict[str, Path], dict[str, bytes]], tmp_path: Path
) -> None:
    paths, first = done
    (paths["report"] / "stale.txt").write_text("from an older report")
    assert reported(paths) == first
    assert sorted(path.name for path in paths["report"].parent.iterdir()) == [
        "cycles",
        "dataset.json",
        "images.arrow",
        "pool.parquet",
        "report",
    ]
    assert reported(campaign_in(tmp_path)) == first


def test_a_report_has_every_chart_as_png_and_svg(files: dict[str, bytes]) -> None:
    names = {"learning_curve", "per_class", "training", "buckets", "capture", "trends", "confusion", "gradients", "tod"}
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")} | {
        "gallery/c1.png",
        "gallery/c2.png",
        "curve.csv",
        "index.html",
    }


def test_the_page_needs_nothing_but_itself(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "http" not in page
    assert "<link" not in page
    assert "<script" not in page
    sources = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert all(link in page for link in re.findall(r"url\(#([\w-]+)\)", page))


def test_no_id_of_the_page_is_used_twice(files: dict[str, bytes]) -> None:
    ids = re.findall(r'\bid="([^"]*)"', files["index.html"].decode())
    assert len(ids) == len(set(ids)) > 100


def test_every_picture_and_chart_says_what_it_shows(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert all(re.search(r'\balt="[^"]+"', tag) for tag in re.findall(r"<img[^>]*>", page))
    assert len(re.findall(r'role="img" aria-label="[^"]+"', page)) == 9


def test_class_names_are_text_not_markup(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "<chips>" not in page
    assert "haddock &amp; &lt;chips&gt;" in page
    assert "$ling$" in files["confusion.svg"].decode()


def test_every_colour_of_a_chart_follows_the_page(files: dict[str, bytes]) -> None:
    drawings = re.findall(r"<svg viewBox.*?</svg>", files["index.html"].decode(), re.DOTALL)
    assert len(drawings) == 16  # seven of the nine have a second drawing for phones
    assert all(not re.search(r"(fill|stroke): #", drawing) for drawing in drawings)


def test_the_gallery_shows_the_query_in_rank_order(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    pixels = [
        Image.open(io.BytesIO(base64.b64decode(data))).getpixel((0, 0))
        for data in re.findall(r'<img src="data:image/png;base64,([^"]*)"', page)
    ]
    assert pixels == [10 * i for cycle in (0, 1) for i in wanted(cycle)[:4]]
    assert re.findall(r"<small>(#\d)[^<]*</small>", page) == ["#1", "#2", "#3", "#4"] * 2
    assert re.findall(r'<img[^>]*alt="Rank (\d) of c1: cod"', page) == [
        str(rank) for rank, i in enumerate(wanted(0)[:4], 1) if i % 3 == 0
    ]


def test_a_gallery_sheet_keeps_pixels_sharp_and_in_rank_order(files: dict[str, bytes]) -> None:
    sheet = Image.open(io.BytesIO(files["gallery/c2.png"])).convert("L")
    assert [sheet.getpixel((12 + 108 * i + 48, 12 + 48)) for i in range(4)] == [10 * i for i in wanted(1)[:4]]
    assert [sheet.getpixel((12 + 108 * i + 48, 12)) for i in range(4)] == [10 * i for i in wanted(1)[:4]]


def test_the_curve_has_a_row_for_every_finished_cycle(done: tuple[dict[str, Path], dict[str, bytes]]) -> None:
    rows = tables.read_csv(done[0]["report"] / "curve.csv", tables.CURVE).to_pylist()
    assert [(row["cycle"], row["labels"], row["spearman"]) for row in rows] == [
        ("c1", 4, 0.5),
        ("c2", 9, None),
        ("c3", 14, None),
    ]


def test_the_headline_counts_labels_against_the_whole_pool(files: dict[str, bytes]) -> None:
    text = " ".join(re.sub(r"<[^>]*>", " ", files["index.html"].decode()).split())
    assert "80.0% accuracy with 14 labels That is 70% of a pool of 20 images, in 3 classes." in text
    assert "1 of 4 test images wrong" in text
    assert "Not finished" not in text


def test_the_page_tells_spearman_with_its_interval_and_the_overlaps(files: dict[str, bytes]) -> None:
    text = " ".join(re.sub(r"<[^>]*>", " ", files["index.html"].decode()).split())
    assert "0.50 0.41 to 0.58" in text
    assert "cycle least confidence cod c1 25% n/a c2 25% 100%" in text


def test_discrepancy_from_the_untrained_model_is_no_part_of_its_trend(
    done: tuple[dict[str, Path], dict[str, bytes]],
) -> None:
    cycles = [finished(done[0]["campaign"] / name, CLASSES) for name in CYCLES]
    moved, losses = trends(Campaign(cycles, CYCLES, CLASSES, (1, 4, 4), POOL, np.eye(3)), WIDE).axes[0].lines
    assert np.asarray(losses.get_xydata()).tolist() == [[4, 0.5], [9, 0.5]]
    assert np.asarray(moved.get_ydata()) == pytest.approx([np.nan, 0.1], nan_ok=True)


@pytest.mark.parametrize("losses", [[0.55, 0.35], [0.19, 0.0002], [0.5, 0.49]])
def test_a_trend_has_numbers_to_read_it_by_however_little_it_falls(losses: list[float]) -> None:
    axes = charts.trends([100, 200], {"mean COD": [None, losses[1]], "mean true loss": losses}).axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2


def test_an_unfinished_campaign_is_reported_as_far_as_it_got(tmp_path: Path) -> None:
    paths = campaign_in(tmp_path, evaluated=1, truth_known=False)
    (paths["campaign"] / "c1" / "annotations.parquet").unlink()
    (paths["campaign"] / "c2").mkdir()
    found = reported(paths)
    assert "Not finished: 1 of 3 cycles so far; c2, c3 still to come." in found["index.html"].decode()
    assert "unanswered" in found["index.html"].decode()
    assert not {"buckets.png", "capture.png", "trends.png"} & set(found)
    assert "Who would have asked for the same?" not in found["index.html"].decode()
    assert tables.read_csv(paths["report"] / "curve.csv", tables.CURVE)["cycle"].to_pylist() == ["c1"]


def test_a_campaign_without_any_metrics_is_refused_in_one_sentence(tmp_path: Path) -> None:
    paths = campaign_in(tmp_path, evaluated=0)
    with pytest.raises(
        DataError,
        match=r"cycles: found no metrics.json of any cycle, expected at least .*c1/metrics.json; run dvc repro$",
    ):
        reported(paths)
    assert not paths["report"].exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"accuracy": "high"}, "accuracy: found 'high'"), ({"per_class_accuracy": {"eel": 1.0}}, "found classes eel")],
)
def test_metrics_that_make_no_sense_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    paths = campaign_in(tmp_path)
    metrics = paths["campaign"] / "c2" / "metrics.json"
    write_json(metrics, json.loads(metrics.read_text()) | change)
    with pytest.raises(DataError, match=f"c2/metrics.json: {complaint}"):
        reported(paths)


def test_a_report_that_fails_halfway_leaves_the_old_one_whole(
    done: tuple[dict[str, Path], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, before = done

    def full(*_: object) -> str:
        raise OSError("the last file cannot be made")

    monkeypatch.setattr("codline.report.page.render", full)
    with pytest.raises(OSError, match="the last file"):
        reported(paths)
    assert {
        str(path.relative_to(paths["report"])): path.read_bytes()
        for path in paths["report"].rglob("*")
        if path.is_file()
    } == before
    assert not list(paths["report"].parent.glob(".report*"))


def test_labels_of_neighbours_keep_their_distance_and_the_last_is_always_shown() -> None:
    assert spaced(np.array([0.0, 10.0, 20.0, 30.0, 35.0]), 15) == [0, 2, 4]


@pytest.mark.parametrize(
    ("heights", "side"),
    [
        ([0, 9, 9], ("center", "bottom")),
        ([9, 0, 9], ("center", "top")),
        ([0, 9, 18], ("left", "top")),
        ([18, 9, 0], ("left", "bottom")),
    ],
)
def test_a_value_stands_where_the_line_does_not_go(heights: list[float], side: tuple[str, str]) -> None:
    assert free_side(np.column_stack([[0, 10, 20], heights]), 1)[1:] == side
