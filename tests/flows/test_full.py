"""Full training: a single cycle with everything labelled, which has no query but a report."""

import json

import pytest

from tests.project import Project

QUICK = ("-S", "train.epochs=2", "-S", "prepare.model.width=4", "-S", "compute.device=cpu")


@pytest.mark.slow
def test_full_training_goes_from_its_preset_to_its_report(untouched: Project) -> None:
    output = untouched.must("codline", "run", "--preset", "digits-full", *QUICK)
    assert "1,294 labels" in output
    assert "4 of 4 stages" in output
    assert json.loads(untouched.must("dvc", "status", "--json")) == {}
    assert "Everything is up to date." in untouched.must("codline", "status")
    assert sorted(path.name for path in (untouched.root / "cycles").iterdir()) == ["c1", "init"]
    page = (untouched.root / "report/index.html").read_text()
    assert "100%</b><span>of the pool labelled" in page
    assert "<h2>Cycles</h2>" in page
    assert "<h2>Queries</h2>" not in page
    assert (untouched.root / "report/curve.csv").read_text().splitlines()[1].startswith('"c1",1294,')
