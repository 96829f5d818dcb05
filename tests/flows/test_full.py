"""Full training: one cycle with everything labelled, which asks for nothing, and still comes to its report."""

import json

import pytest

from tests.project import Project

QUICK = ("-S", "train.epochs=2", "-S", "prepare.model.width=4", "-S", "compute.device=cpu")


@pytest.mark.slow
def test_full_training_goes_from_its_preset_to_its_report(untouched: Project) -> None:
    said = untouched.must("codline", "run", "--preset", "digits-full", *QUICK)
    assert "1,438 labels" in said
    assert "4 of 4 stages" in said
    assert json.loads(untouched.must("dvc", "status", "--json")) == {}
    assert "Everything is up to date." in untouched.must("codline", "status")
    assert sorted(path.name for path in (untouched.root / "cycles").iterdir()) == ["c1", "init"]
    page = (untouched.root / "report/index.html").read_text()
    assert "100%</b><span>of the pool labelled" in page
    assert "What it asked for" not in page
    assert (untouched.root / "report/curve.csv").read_text().splitlines()[1].startswith('"c1",1438,')
