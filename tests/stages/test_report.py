"""report: a self-contained page, reproducible to the byte, and replaced atomically."""

import base64
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from codline.core.campaign_setup import CampaignSetup
from codline.core.errors import DataError
from codline.core.files import write_json
from codline.data import image_store, tables
from codline.evaluation.rank_statistics import RANKING_KEYS
from codline.report import charts
from codline.report.chart_layout import WIDE, label_placement, spaced_indices
from codline.report.page import discrepancy_and_loss
from codline.report.results import CampaignResult, read_cycle
from stages.report import Params, report

CLASSES = ["cod", "haddock & <chips>", "$ling$"]
SETUP = CampaignSetup(dataset="fish", model="small_cnn", strategy="entropy")
CYCLES = ["c1", "c2", "c3"]
POOL, START, BUDGET = 20, 4, 5
Finished = tuple[dict[str, Path], dict[str, bytes]]  # paths that the stage got, files of the report


def create_campaign(
    root: Path, *, evaluated: int = 3, has_truth: bool = True, ranks_pool: bool = True
) -> dict[str, Path]:
    """Write three cycles over twenty uniform images, image i of brightness 10 * i; return the stage's paths."""
    ids = np.arange(POOL)
    images = np.repeat(ids * 10, 16).astype(np.uint8).reshape(POOL, 1, 4, 4)
    image_store.write_images(root / "images", ids, images)
    info = {"task": "classification", "classes": CLASSES, "shape": [1, 4, 4], "mean": [0.5], "std": [0.5]}
    write_json(root / "dataset.json", info)
    tables.write_table(pa.table([ids, ["0" * 64] * POOL], schema=tables.POOL), tables.POOL, root / "pool.parquet")
    for i, name in enumerate(CYCLES[:evaluated]):
        write_evaluation(root / "cycles" / name, i)
        if name != CYCLES[-1]:
            write_query(root / "cycles" / name, i, has_truth, ranks_pool)
    names_of_files = [[19, 18, 18], ["fish/big <1>.jpg", "b.jpg", "copy of b.jpg"]]
    tables.write_columns(names_of_files, tables.FILES, root / "files.parquet")
    names = {"images": "images", "dataset": "dataset.json", "files": "files.parquet", "pool": "pool.parquet"}
    names |= {"campaign": "cycles"}
    names |= {"report": "report", "best_model": "models/best.safetensors"}
    return {argument: root / name for argument, name in names.items()}


def write_evaluation(folder: Path, i: int) -> None:
    accuracies = {"cod": 1.0, CLASSES[1]: 0.5 + 0.2 * i, CLASSES[2]: 0.5}
    accuracy = 0.6 + 0.1 * i
    metrics = {"labels": START + BUDGET * i, "accuracy": accuracy, "accuracy_low": accuracy - 0.3}
    metrics |= {"accuracy_high": accuracy + 0.15, "balanced_accuracy": accuracy - 0.05, "macro_f1": accuracy - 0.1}
    metrics |= {"loss": 1.0 / (i + 1), "calibration_error": 0.1, "validation_accuracy": (0.5, 0.7, 0.6)[i]}
    write_json(folder / "metrics.json", metrics)
    details = {"test_images": 4, "validation_images": 2, "per_class_images": dict(zip(CLASSES, (2, 1, 1), strict=True))}
    write_json(folder / "details.json", details | {"per_class_accuracy": accuracies})
    actual, predicted = ["cod", "cod", *CLASSES[1:]], ["cod", CLASSES[1], *CLASSES[1:]]
    predictions = pa.table([[90, 91, 92, 93], [""] * 4, actual, predicted, [0.9] * 4], schema=tables.PREDICTIONS)
    tables.write_csv(predictions, tables.PREDICTIONS, folder / "predictions.csv")
    training = pa.table([[1, 2], [0.1, 0.1], [1.0, 0.5 / (i + 1)], [0.0, 0.0], [0.5, 0.9]], schema=tables.TRAINING)
    tables.write_csv(training, tables.TRAINING, folder / "training.csv")
    (folder / "model.safetensors").write_bytes(f"model of cycle {i}".encode())


def write_query(folder: Path, i: int, has_truth: bool, ranks_pool: bool) -> None:
    """A query of five images by descending brightness; the rows of its files are not in the order of ranks."""
    ids = queried_ids(i)[::-1]
    schema = tables.schema_of_scores(tables.QUERY, ranks_pool)
    query = pa.table([ids, np.arange(BUDGET, 0, -1), np.linspace(0.1, 0.9, BUDGET)], schema=schema)
    tables.write_table(query, tables.QUERY, folder / "query.parquet")
    annotations = pa.table([ids, ids % len(CLASSES), ["simulated"] * BUDGET], schema=tables.ANNOTATIONS)
    tables.write_table(annotations, tables.ANNOTATIONS, folder / "annotations.parquet")
    write_json(folder / "cost.json", {"asked": BUDGET, "answered": BUDGET, "wrong": i})
    if has_truth:
        unknown = {} if ranks_pool else dict.fromkeys(RANKING_KEYS)
        write_json(folder / "diagnostics.json", diagnostics_of(i) | unknown)


def diagnostics_of(i: int) -> dict[str, Any]:
    spearman, low, high = (None, None, None) if i else (0.5, 0.41, 0.58)
    return {
        "spearman": spearman,
        "spearman_low": low,
        "spearman_high": high,
        "mean_score": 0.4,
        "mean_discrepancy": 0.9 - 0.8 * i,
        "mean_loss": 0.5,
        "mean_loss_of_query": 1.0,
        "loss_ratio": 2.0,
        "bucket_losses": [1.0, 0.5, 0.0],
        "capture": np.linspace(0.5, 1, 100).tolist(),
        "capture_gain": 0.5,
        "squared_gradient_norm": {
            "labeled": 3.0,
            "unlabeled": 4.0,
            "all": 3.5,
            "variation": 0.25 + i / 10,
            "within_cycle": {"steps": [10, 40], "all": [3.0, 3.5], "variation": [0.2, 0.25 + i / 10]},
        },
        "tod": {"10": {"capture": [0.2, 1.0], "capture_gain": 0.1}, "5": {"capture": [0.1, 1.0], "capture_gain": 0.0}},
        "overlap": {"least_confidence": 0.25, **({"cod": 1.0} if i else {})},
        "classes_in_query": [2, 2, 1],
    }


def queried_ids(i: int) -> np.ndarray:
    return np.arange(POOL - 1 - BUDGET * i, POOL - 1 - BUDGET * (i + 1), -1)


def run_report(paths: dict[str, Path], gallery: int = 4) -> dict[str, bytes]:
    """Run the stage and return the bytes of every file in the report, by name."""
    report(Params(gallery=gallery), seed=5, setup=SETUP, cycles=CYCLES, **paths)
    return files_in(paths["report"])


def text_of(files: dict[str, bytes]) -> str:
    """What a person reads on the page."""
    page = re.sub(r"<style>.*?</style>", "", files["index.html"].decode(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished_report(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    paths = create_campaign(tmp_path_factory.mktemp("finished"))
    return paths, run_report(paths)


@pytest.fixture(scope="module")
def files(finished_report: Finished) -> dict[str, bytes]:
    return finished_report[1]


def test_report_gives_the_same_bytes_twice_and_leaves_no_other_files(finished_report: Finished, tmp_path: Path) -> None:
    paths, first = finished_report
    (paths["report"] / "stale.txt").write_text("from an older report")
    assert run_report(paths) == first
    expected = {path.relative_to(paths["report"].parent).parts[0] for path in paths.values()}
    assert {path.name for path in paths["report"].parent.iterdir()} == expected
    assert run_report(create_campaign(tmp_path)) == first


def test_report_has_every_chart_as_png_and_svg(files: dict[str, bytes]) -> None:
    names = {"learning_curve", "per_class", "training", "confusion"}
    names |= {"query_loss", "buckets", "capture", "trends", "gradients", "tod"}
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")} | {
        "gallery/c1.png",
        "gallery/c2.png",
        "curve.csv",
        "index.html",
    }


def test_page_has_no_external_resources(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "http" not in page
    assert "<link" not in page
    assert "<script" not in page
    sources = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert all(link in page for link in re.findall(r"url\(#([\w-]+)\)", page))


def test_page_uses_no_id_twice(files: dict[str, bytes]) -> None:
    ids = re.findall(r'\bid="([^"]*)"', files["index.html"].decode())
    assert len(ids) == len(set(ids)) > 100


def test_page_describes_every_image_and_chart_in_words(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert all(re.search(r'\balt="[^"]+"', tag) for tag in re.findall(r"<img[^>]*>", page))
    assert len(re.findall(r'role="img" aria-label="[^"]+"', page)) == 10


def test_page_escapes_class_names(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "<chips>" not in page
    assert "haddock &amp; &lt;chips&gt;" in page
    assert "$ling$" in files["confusion.svg"].decode()


def test_page_takes_every_color_of_a_chart_from_its_style_sheet(files: dict[str, bytes]) -> None:
    drawings = re.findall(r"<svg viewBox.*?</svg>", files["index.html"].decode(), re.DOTALL)
    assert len(drawings) == 18  # eight of the ten have a second drawing for phones
    assert all(not re.search(r"(fill|stroke): #", drawing) for drawing in drawings)


def test_page_shows_the_query_in_rank_order(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    pixels = [
        Image.open(io.BytesIO(base64.b64decode(data))).getpixel((0, 0))
        for data in re.findall(r'<img src="data:image/png;base64,([^"]*)"', page)
    ]
    assert pixels == [10 * i for cycle in (0, 1) for i in queried_ids(cycle)[:4]]
    assert re.findall(r"<small>(#\d)[^<]*</small>", page) == ["#1", "#2", "#3", "#4"] * 2
    assert re.findall(r'<img[^>]*alt="Rank (\d) of c1: cod"', page) == [
        str(rank) for rank, i in enumerate(queried_ids(0)[:4], 1) if i % 3 == 0
    ]


def test_page_shows_the_images_that_were_labeled_in_place_of_others(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path, has_truth=False)
    (first, second, *_), other = queried_ids(0), 0
    annotations = pa.table([[second, other, first], [0, 0, 0], ["people"] * 3], schema=tables.ANNOTATIONS)
    tables.write_table(annotations, tables.ANNOTATIONS, paths["campaign"] / "c1/annotations.parquet")
    page = run_report(paths)["index.html"].decode()
    assert re.findall(r"<small>([#\w ]+?)(?: ·[^<]*)?</small><?", page.partition("<b>c2</b>")[0])[-3:] == [
        "#1",
        "#2",
        "not in the query",
    ]


def test_page_shows_the_first_file_name_of_an_image(files: dict[str, bytes]) -> None:
    names = re.findall(r'class="file" title="([^"]*)">([^<]*)<', files["index.html"].decode())
    assert names == [("fish/big &lt;1&gt;.jpg", "big &lt;1&gt;.jpg"), ("b.jpg", "b.jpg")]


def test_gallery_keeps_pixels_sharp_and_images_in_rank_order(files: dict[str, bytes]) -> None:
    sheet = Image.open(io.BytesIO(files["gallery/c2.png"])).convert("L")
    assert [sheet.getpixel((12 + 108 * i + 48, 12 + 48)) for i in range(4)] == [10 * i for i in queried_ids(1)[:4]]
    assert [sheet.getpixel((12 + 108 * i + 48, 12)) for i in range(4)] == [10 * i for i in queried_ids(1)[:4]]


def test_best_model_is_that_of_the_highest_validation_metric_and_not_of_the_highest_test_metric(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path)
    assert "cycle c2, chosen by validation accuracy (70.0%)" in text_of(run_report(paths))
    assert paths["best_model"].read_bytes() == b"model of cycle 1"


def test_best_model_is_the_last_one_without_validation_images(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path)
    for path in paths["campaign"].glob("*/metrics.json"):
        write_json(path, {key: value for key, value in json.loads(path.read_text()).items() if "validation" not in key})
        details = path.with_name("details.json")
        write_json(details, json.loads(details.read_text()) | {"validation_images": 0})
    assert "cycle c3, the last one, as there are no validation images to choose by" in text_of(run_report(paths))
    assert paths["best_model"].read_bytes() == b"model of cycle 2"


def test_curve_csv_has_a_row_for_every_evaluated_cycle(
    finished_report: Finished,
) -> None:
    rows = tables.read_csv(finished_report[0]["report"] / "curve.csv", tables.CURVE).to_pylist()
    assert [(row["cycle"], row["labels"], row["spearman"]) for row in rows] == [
        ("c1", 4, 0.5),
        ("c2", 9, None),
        ("c3", 14, None),
    ]


def test_page_names_the_campaign_and_its_primary_metric_with_its_interval(files: dict[str, bytes]) -> None:
    text = text_of(files)
    assert "codline fish · entropy · seed 5 80.0% accuracy with 14 labels" in text
    assert "95% interval 50.0% to 95.0%, from 4 test images. The labels are 70% of a pool of 20 images." in text
    assert "fish: 26 images, 3 classes" in text
    assert "20 in the pool, 2 validation, 4 test" in text
    assert "Strategy entropy Model small_cnn Seed 5" in text
    assert "c2 9 70.0% 40.0% to 85.0% 65.0% 60.0% 70.0%" in text
    assert "1 of 4 test images misclassified" in text


def test_page_says_that_a_class_has_no_test_images(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path)
    for path in paths["campaign"].glob("*/details.json"):
        details = json.loads(path.read_text())
        details["per_class_accuracy"]["cod"], details["per_class_images"]["cod"] = None, 0
        write_json(path, details)
    assert run_report(paths)["per_class.svg"].decode().count("no test images") == 1


def test_page_of_a_finished_campaign_names_the_best_model(files: dict[str, bytes]) -> None:
    complete = "The campaign is complete. The best model is models/best.safetensors , cycle c2, chosen by validation"
    assert complete in text_of(files)
    assert "Not finished" not in text_of(files)


def test_page_shows_spearman_with_its_interval_and_the_overlaps(files: dict[str, bytes]) -> None:
    text = " ".join(re.sub(r"<[^>]*>", " ", files["index.html"].decode()).split())
    assert "0.50 0.41 to 0.58" in text
    assert "cycle least confidence cod c1 25% n/a c2 25% 100%" in text


def test_discrepancy_chart_leaves_out_the_discrepancy_to_the_untrained_model(
    finished_report: Finished,
) -> None:
    paths, _ = finished_report
    cycles = [read_cycle(paths["campaign"] / name, CLASSES, paths["files"]) for name in CYCLES]
    campaign = CampaignResult(SETUP, 5, cycles, CYCLES, CLASSES, (1, 4, 4), POOL, np.eye(3))
    discrepancies, losses = discrepancy_and_loss(campaign, WIDE).axes[0].lines
    assert np.asarray(losses.get_xydata()).tolist() == [[4, 0.5], [9, 0.5]]
    assert np.asarray(discrepancies.get_ydata()) == pytest.approx([np.nan, 0.1], nan_ok=True)


@pytest.mark.parametrize("losses", [[0.55, 0.35], [0.19, 0.0002], [0.5, 0.49]])
def test_trends_chart_has_at_least_two_ticks_however_small_the_range(losses: list[float]) -> None:
    axes = charts.trends([100, 200], {"mean COD": [None, losses[1]], "mean true loss": losses}).axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2


def test_gradient_chart_has_a_line_within_cycles_and_a_point_after_each(files: dict[str, bytes]) -> None:
    norms = (np.array([0, 10, 40]), np.array([2, 3.0, 3.5]), np.array([0.1, 0.2, 0.3]))
    within, after = charts.gradient_norms({"c1": norms, "c2": norms}).axes[0].lines[:2]
    assert np.asarray(within.get_xydata()).tolist() == [[0, 2], [0.25, 3], [1, 3.5], [1, 2], [1.25, 3], [2, 3.5]]
    assert np.asarray(after.get_xydata()).tolist() == [[1, 3.5], [2, 3.5]]
    assert "Coefficient of variation between images: 0.20 to 0.35." in text_of(files)


def test_page_of_a_strategy_that_selects_whole_queries_has_losses_and_no_rank_statistics(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path, ranks_pool=False)
    found = run_report(paths)
    text = text_of(found)
    assert not {"buckets.png", "capture.png"} & set(found)
    assert {"query_loss.png", "trends.png", "gradients.png"} <= set(found)
    assert "entropy selects whole queries and does not rank the unlabelled images" in text
    assert "Spearman" not in text
    assert "1.00 0.500 2.0" in text
    assert "Below each image: its label, rank and file." in text
    assert "#2 · 0.700" not in text
    rows = tables.read_csv(paths["report"] / "curve.csv", tables.CURVE).to_pylist()
    assert [(row["loss_ratio"], row["spearman"]) for row in rows] == [(2.0, None), (2.0, None), (None, None)]


def test_page_of_a_strategy_that_ranks_has_scores_and_rank_statistics(files: dict[str, bytes]) -> None:
    text = text_of(files)
    assert "selects whole queries" not in text
    assert "0.50 0.41 to 0.58 1.00 0.500 2.0" in text
    assert "Below each image: its label, rank, score and file." in text
    assert "#2 · 0.700" in text


def test_report_covers_the_evaluated_cycles_of_an_unfinished_campaign(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path, evaluated=1, has_truth=False)
    (paths["campaign"] / "c1" / "annotations.parquet").unlink()
    (paths["campaign"] / "c2").mkdir()
    found = run_report(paths)
    label = "Next step: Label the 5 images in queries/c1, then run codline run ."
    assert f"Not finished: 1 of 3 cycles so far. {label}" in text_of(found)
    assert "unlabelled</b>" in found["index.html"].decode()
    assert not {"buckets.png", "capture.png", "trends.png"} & set(found)
    assert "Overlap with other strategies" not in found["index.html"].decode()
    assert tables.read_csv(paths["report"] / "curve.csv", tables.CURVE)["cycle"].to_pylist() == ["c1"]


def test_page_of_an_interrupted_campaign_says_which_cycles_to_run(tmp_path: Path) -> None:
    found = run_report(create_campaign(tmp_path, evaluated=2))
    assert "2 of 3 cycles so far. Next step: Run codline run for c3." in text_of(found)


def test_report_refuses_a_campaign_without_any_metrics(tmp_path: Path) -> None:
    paths = create_campaign(tmp_path, evaluated=0)
    with pytest.raises(
        DataError,
        match=r"cycles: found no metrics.json of any cycle, expected at least .*c1/metrics.json; run dvc repro$",
    ):
        run_report(paths)
    assert not paths["report"].exists()


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("metrics", {"accuracy": "high"}, "accuracy: found 'high'"),
        ("details", {"per_class_accuracy": {"eel": 1.0}}, "found classes eel"),
    ],
)
def test_report_refuses_invalid_results(tmp_path: Path, name: str, change: dict[str, Any], complaint: str) -> None:
    paths = create_campaign(tmp_path)
    path = paths["campaign"] / "c2" / f"{name}.json"
    write_json(path, json.loads(path.read_text()) | change)
    with pytest.raises(DataError, match=f"c2/{name}.json: {complaint}"):
        run_report(paths)


def test_report_that_fails_halfway_leaves_the_previous_one_intact(
    finished_report: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, before = finished_report

    def fail(*_: object) -> str:
        raise OSError("the last file cannot be made")

    monkeypatch.setattr("codline.report.page.render", fail)
    with pytest.raises(OSError, match="the last file"):
        run_report(paths)
    assert files_in(paths["report"]) == before
    assert not list(paths["report"].parent.glob(".report*"))


def test_spaced_indices_keep_their_distance_and_include_the_last() -> None:
    assert spaced_indices(np.array([0.0, 10.0, 20.0, 30.0, 35.0]), 15) == [0, 2, 4]


@pytest.mark.parametrize(
    ("heights", "side"),
    [
        ([0, 9, 9], ("center", "bottom")),
        ([9, 0, 9], ("center", "top")),
        ([0, 9, 18], ("left", "top")),
        ([18, 9, 0], ("left", "bottom")),
    ],
)
def test_label_placement_avoids_the_line(heights: list[float], side: tuple[str, str]) -> None:
    assert label_placement(np.column_stack([[0, 10, 20], heights]), 1)[1:] == side
