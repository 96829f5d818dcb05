"""`codline paper --all` at the scale smoke: every campaign runs once, and every item is drawn from them."""

import pytest

from codline.core.files import read_json
from codline.paper.items import ITEMS
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_all_items_are_made_from_campaigns_that_they_share(untouched: Project) -> None:
    untouched.environment["CODLINE_TRACKING"] = "off"
    shown = untouched.must("codline", "paper", "--all", "--scale", "smoke", "--jobs", "2", timeout=880)
    assert "70 of 70 campaigns to run" in shown
    folder = untouched.root / ".codline/paper/smoke"
    drawn = {item.name: read_json(folder / item.name / "item.json") for item in ITEMS if not item.is_diagram}
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == sum(each["has_figure"] for each in drawn.values()) == 12
    assert "Not made at this scale." not in page
    campaigns = [each["notes"] for name, each in drawn.items() if name not in ("proofs", "datasets", "settings")]
    assert all(any("Means over 2 seeds" in note for note in notes) for notes in campaigns)
    assert len(drawn["per-class"]["table"]["rows"]) == 10  # the classes of digits

    again = untouched.must("codline", "paper", "figure-11", "--scale", "smoke")
    assert "campaigns to run" not in again
    assert "CIFAR-10: here digits, 1,294 images of 8x8 pixels." in again
