"""Figures and tables drawn from made-up campaigns with known numbers, and from one real campaign."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from codline.core.files import read_json, write_json
from codline.paper import losses, times
from codline.paper.__main__ import draw_item
from codline.paper.campaigns import Campaign, Request
from codline.paper.drawing import Drawing
from codline.paper.items import ITEMS, find_item
from codline.paper.page import write_page
from codline.report.chart_layout import to_svg
from tests.paper.synthetic import make_request

# `capture` and `time` read images and outputs: a real campaign is below.
DRAWN = [item.name for item in ITEMS if item.datasets and item.name not in ("capture", "time")]


def draw(request: Request) -> Drawing:
    module, _, function = find_item(request.item).draw.partition(".")
    drawing: Drawing = getattr(import_module(f"codline.paper.{module}"), function)(request)
    return drawing


def cell(drawing: Drawing, row: str, column: str) -> str:
    assert drawing.table
    cells = next(each for each in drawing.table.rows if each[0] == row)
    return cells[drawing.table.columns.index(column)]


@pytest.mark.parametrize("name", DRAWN)
def test_item_is_drawn_and_says_how_many_seeds_it_has(name: str, tmp_path: Path) -> None:
    drawing = draw(make_request(find_item(name), tmp_path))
    assert drawing.figure or drawing.table
    assert any("Means over 2 seeds" in note for note in drawing.notes)
    if drawing.table:
        assert {len(row) for row in drawing.table.rows} == {len(drawing.table.columns)}


@pytest.mark.parametrize("name", DRAWN)
def test_item_without_data_says_what_to_give(name: str, tmp_path: Path) -> None:
    item = find_item(name)
    drawing = draw(make_request(item, tmp_path, missing=item.datasets))
    assert any(f"give --data {item.datasets[0]}=FOLDER" in note for note in drawing.notes)
    if drawing.figure:
        assert "no data at this scale" in to_svg(drawing.figure)


def test_curves_have_our_last_point_next_to_the_published_number(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("classification"), tmp_path, missing=("svhn",)))
    assert cell(drawing, "Ours-Semi", "CIFAR-10, 40% labelled") == "70.5 ± 6.4"
    assert cell(drawing, "Ours-Semi", "paper, 40%") == "94.5"
    assert cell(drawing, "CoreGCN", "paper, 40%") == "-"
    assert drawing.figure
    svg = to_svg(drawing.figure)
    assert "Full Training 70.5" in svg
    assert "no data at this scale" in svg


def test_curves_of_other_protocols_have_no_published_points(tmp_path: Path) -> None:
    """Numbers of another protocol would be taken for ours."""
    points = {}
    for scale in ("paper", "small"):
        figure = draw(make_request(find_item("sampling"), tmp_path / scale, scale)).figure
        assert figure
        points[scale] = sum(len(line.get_xdata()) == 1 for axes in figure.axes for line in axes.get_lines())
    assert points == {"paper": 8, "small": 0}


def test_forty_percent_has_gains_over_base_for_both(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("forty-percent"), tmp_path))
    assert cell(drawing, "CIFAR-10, here", "Base+Semi+Active") == "70.5 ± 6.4 (+0.0)"
    assert cell(drawing, "CIFAR-10, paper", "Base+Semi+Active") == "94.5 (+2.7)"
    assert cell(drawing, "CIFAR-100, paper", "Base") == "62.3"


def test_hyper_parameters_are_shown_at_10_20_30_and_40_percent(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("hyper-parameters"), tmp_path))
    assert drawing.table
    assert drawing.table.columns == ["setting", *(f"{share}% labelled" for share in (10, 20, 30, 40))]
    assert [row[0] for row in drawing.table.rows][:3] == ["lambda = 0.005", "lambda = 0.01", "lambda = 0.05"]


def test_gradient_norms_have_both_variations(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("gradient-norms"), tmp_path))
    assert cell(drawing, "CIFAR-10", "smallest mean") == "5"
    assert cell(drawing, "CIFAR-10", "variation over cycles") == f"{np.std(range(5, 11)) / 7.5:.2f}"
    assert cell(drawing, "CIFAR-10", "variation over images") == "0.30"


def test_settings_of_the_presets_are_the_published_ones(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("settings"), tmp_path))
    assert drawing.table
    for preset, paper in zip(drawing.table.rows[::2], drawing.table.rows[1::2], strict=True):
        assert preset[1:] == paper[1:]


def test_datasets_differ_from_the_paper_in_caltech_101_alone(tmp_path: Path) -> None:
    drawing = draw(make_request(find_item("datasets"), tmp_path))
    assert drawing.table
    pairs = zip(drawing.table.rows[::2], drawing.table.rows[1::2], strict=True)
    assert [ours[0] for ours, theirs in pairs if ours[1:] != theirs[1:]] == ["Caltech-101, preset"]


@pytest.fixture
def real(campaign: Path) -> Campaign:
    """The campaign of the tests, which selects by COD."""
    rows = [{"cycle": f"c{i}"} | read_json(campaign / f"cycles/c{i}/metrics.json") for i in (1, 2, 3)]
    return Campaign("LL4AL", 0, campaign, rows)


def test_cod_scored_again_captures_what_the_diagnosis_of_cod_has(real: Campaign) -> None:
    assert losses.cod_capture(real, 1) == pytest.approx(real.diagnosis("c2").capture)


def test_sampling_is_timed_on_a_finished_campaign_without_changing_it(real: Campaign) -> None:
    before = {path: path.stat().st_mtime_ns for path in real.folder.rglob("*") if path.is_file()}
    assert times.score_seconds(real, {"name": "random"}) > 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_item_is_written_as_files_and_shown_on_one_page_without_external_resources(tmp_path: Path) -> None:
    folder = tmp_path / "smoke/per-class"
    request = make_request(find_item("per-class"), tmp_path / "campaigns")
    panel = request.panels[0]
    campaigns = [
        {"arm": each.arm, "seed": each.seed, "folder": str(each.folder), "curve": each.curve}
        for each in panel.campaigns
    ]
    panels = [{"dataset": "cifar10", "used": "digits", "description": "digits", "missing": "", "campaigns": campaigns}]
    write_json(folder / "request.json", {"item": "per-class", "scale": "smoke", "panels": panels, "presets": {}})
    draw_item(folder)
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "table.csv").read_text().startswith("class,cycle 1,")
    write_page(folder.parent)
    page = (folder.parent / "index.html").read_text()
    assert "CIFAR-10: here digits." in page
    assert page.count("<svg") == 1
    assert page.count("Not made at this scale.") == sum(not item.is_diagram for item in ITEMS) - 1
    assert "src=" not in page
    assert 'href="http' not in page
