"""`codline paper` at the scale smoke: campaigns run once, are shared between items, and are drawn."""

import pytest

from codline.core.files import read_json
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_item_runs_its_campaigns_once_and_is_drawn_from_them(untouched: Project) -> None:
    untouched.environment["CODLINE_TRACKING"] = "off"
    shown = untouched.must("codline", "paper", "per-class", "--scale", "smoke", "--jobs", "2", timeout=580)
    assert "2 of 2 campaigns to run" in shown
    folder = untouched.root / ".codline/paper/smoke/per-class"
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    drawn = read_json(folder / "item.json")
    assert [len(row) for row in drawn["table"]["rows"]] == [4] * 10  # the classes of digits, in three cycles
    assert "CIFAR-10: here digits, 1,294 images of 8x8 pixels." in drawn["notes"]

    again = untouched.must("codline", "paper", "figure-11", "--scale", "smoke")
    assert "campaigns to run" not in again
    listed = untouched.with_environment(COLUMNS="240").must("codline", "paper")
    states = {line.split("│")[1].strip(): line.split("│")[4].strip() for line in listed.splitlines() if "│" in line}
    assert states["per-class"] == "done"
    assert states["sampling"].startswith("2 of 10, ")
