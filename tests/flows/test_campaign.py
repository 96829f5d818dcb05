"""One truth: after a flow DVC has nothing to do, and what changed is all that runs again."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.project import Project


def stale(project: Project) -> set[str]:
    return set(json.loads(project.must("dvc", "status", "--json")))


def test_after_a_campaign_dvc_has_nothing_to_do(finished: Project) -> None:
    assert stale(finished) == set()
    assert (finished.root / "report/index.html").stat().st_size > 50_000


def test_a_second_run_finds_everything_done(finished: Project) -> None:
    before = finished.lock
    said = finished.must("codline", "run")
    assert "Everything is up to date." in said
    assert finished.lock == before


def test_status_shows_each_cycle_with_its_labels_and_accuracy(finished: Project) -> None:
    said = finished.must("codline", "status")
    assert re.search(r"c1 .* 144 .* \d+\.\d\d%", said)
    assert "Everything is up to date." in said


def test_touching_an_unused_strategy_reruns_nothing(project: Project) -> None:
    with (project.root / "codline/strategies/entropy.py").open("a") as file:
        file.write("# a remark\n")
    assert stale(project) == set()


def test_touching_the_strategy_in_use_never_retrains(project: Project) -> None:
    with (project.root / "codline/strategies/cod.py").open("a") as file:
        file.write("# a remark\n")
    assert stale(project) == {"score@c1"}


def test_another_strategy_reruns_the_score_and_not_the_first_training(project: Project) -> None:
    text = (project.root / "params.yaml").read_text()
    (project.root / "params.yaml").write_text(re.sub(r"strategy: \{.*?\}", "strategy: {name: margin}", text))
    assert stale(project) == {"score@c1"}


def test_adding_a_cycle_reruns_nothing_of_the_old_ones_but_the_report(project: Project) -> None:
    text = (project.root / "params.yaml").read_text()
    longer = text.replace(
        "queries:\n  c1:\n    prev: init", "  c3:\n    prev: c2\nqueries:\n  c1:\n    prev: init\n  c2:\n    prev: c1"
    )
    assert longer != text
    (project.root / "params.yaml").write_text(longer)
    new = {"score@c2", "select@c2", "annotate@c2", "merge@c2", "diagnose@c2", "train@c3", "evaluate@c3", "report"}
    assert stale(project) <= new
    assert stale(project)


def test_metrics_plots_and_parameters_are_dvc_s_to_show(finished: Project) -> None:
    assert "cycles/c2/metrics.json" in finished.must("dvc", "metrics", "show")
    assert "labels" in finished.must("dvc", "plots", "show", "--show-vega", "report/curve.csv")
    assert "train.epochs" in finished.must("dvc", "params", "diff", "--all")


def test_results_travel_through_a_remote(project: Project, tmp_path: Path) -> None:
    project.must("dvc", "remote", "add", "--local", "-d", "there", str(tmp_path / "remote"))
    project.must("dvc", "push", "-q")
    project.must("git", "clone", "-q", ".", str(tmp_path / "other"))
    shutil.copy(project.root / "dvc.lock", tmp_path / "other/dvc.lock")
    other = Project(tmp_path / "other")
    other.must("dvc", "remote", "add", "--local", "-d", "there", str(tmp_path / "remote"))
    other.must("dvc", "pull", "-q")
    assert stale(other) == set()


@pytest.mark.slow
def test_an_experiment_changes_a_parameter_for_one_run(project: Project) -> None:
    said = project.must("dvc", "exp", "run", "-S", "report.gallery=4")
    assert "Running stage 'report'" in said
    assert "Running stage 'train" not in said


@pytest.mark.slow
def test_forcing_every_stage_changes_nothing(project: Project) -> None:
    """Warm against warm; tests/core/test_exit_codes.py has the cold ones."""
    before = project.lock
    project.must("dvc", "repro", "--force", "-q")
    assert project.lock == before


@pytest.mark.slow
def test_a_campaign_can_be_lengthened_and_shortened_again(project: Project) -> None:
    before = project.lock
    project.must("codline", "run", "--cycles", "3")
    assert stale(project) == set()
    assert b"train@c3" in project.lock
    project.must("codline", "run", "--cycles", "2")
    assert project.lock == before
