"""After a campaign DVC has nothing to do, and after a change DVC runs what depends on it and nothing else."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.project import Project


def stale_stages(project: Project) -> set[str]:
    return set(json.loads(project.must("dvc", "status", "--json")))


def test_campaign_leaves_dvc_nothing_to_do(finished: Project) -> None:
    assert stale_stages(finished) == set()
    assert (finished.root / "report/index.html").stat().st_size > 50_000


def test_run_skips_a_finished_campaign(finished: Project) -> None:
    before = finished.lock
    output = finished.must("codline", "run")
    assert "Everything is up to date." in output
    assert finished.lock == before


def test_status_shows_each_cycle_with_its_labels_and_accuracy(finished: Project) -> None:
    output = finished.must("codline", "status")
    assert re.search(r"c1 .* 144 .* \d+\.\d\d%", output)
    assert "Everything is up to date." in output


@pytest.mark.parametrize(
    ("module", "stale"),
    [
        ("codline/strategies/entropy.py", set()),  # not the strategy of this campaign
        ("codline/strategies/cod.py", {"score@c1"}),  # DVC runs what follows once the scores change
        ("codline/runtime/progress.py", set()),  # decides no byte of a result
        ("stages/merge.py", {"merge@c1"}),
    ],
)
def test_dvc_runs_only_stages_whose_code_changed(project: Project, module: str, stale: set[str]) -> None:
    with (project.root / module).open("a") as file:
        file.write("# a comment\n")
    assert stale_stages(project) == stale


def test_dvc_scores_but_does_not_train_the_first_cycle_for_another_strategy(project: Project) -> None:
    text = (project.root / "params.yaml").read_text()
    (project.root / "params.yaml").write_text(re.sub(r"strategy: \{.*?\}", "strategy: {name: margin}", text))
    assert stale_stages(project) == {"score@c1"}


def test_dvc_runs_only_new_stages_and_the_report_for_an_added_cycle(project: Project) -> None:
    text = (project.root / "params.yaml").read_text()
    longer = text.replace(
        "queries:\n  c1:\n    prev: init", "  c3:\n    prev: c2\nqueries:\n  c1:\n    prev: init\n  c2:\n    prev: c1"
    )
    assert longer != text
    (project.root / "params.yaml").write_text(longer)
    new = {"score@c2", "select@c2", "annotate@c2", "merge@c2", "diagnose@c2", "train@c3", "evaluate@c3", "report"}
    assert stale_stages(project) <= new
    assert stale_stages(project)


def test_dvc_shows_metrics_plots_and_parameters(finished: Project) -> None:
    assert "cycles/c2/metrics.json" in finished.must("dvc", "metrics", "show")
    assert "labels" in finished.must("dvc", "plots", "show", "--show-vega", "report/curve.csv")
    assert "train.epochs" in finished.must("dvc", "params", "diff", "--all")


def test_dvc_push_and_pull_transfer_all_results(project: Project, tmp_path: Path) -> None:
    project.must("dvc", "remote", "add", "--local", "-d", "there", str(tmp_path / "remote"))
    project.must("dvc", "push", "-q")
    project.must("git", "clone", "-q", ".", str(tmp_path / "other"))
    shutil.copy(project.root / "dvc.lock", tmp_path / "other/dvc.lock")
    other = Project(tmp_path / "other")
    other.must("dvc", "remote", "add", "--local", "-d", "there", str(tmp_path / "remote"))
    other.must("dvc", "pull", "-q")
    assert stale_stages(other) == set()


@pytest.mark.slow
def test_dvc_exp_run_changes_a_parameter_for_one_run(project: Project) -> None:
    output = project.must("dvc", "exp", "run", "-S", "report.gallery=4")
    assert "Running stage 'report'" in output
    assert "Running stage 'train" not in output


@pytest.mark.slow
def test_dvc_repro_force_changes_nothing(project: Project) -> None:
    before = project.lock
    project.must("dvc", "repro", "--force", "-q")
    assert project.lock == before


@pytest.mark.slow
def test_run_lengthens_and_shortens_a_campaign(project: Project) -> None:
    before = project.lock
    project.must("codline", "run", "--cycles", "3")
    assert stale_stages(project) == set()
    assert b"train@c3" in project.lock
    project.must("codline", "run", "--cycles", "2")
    assert project.lock == before
