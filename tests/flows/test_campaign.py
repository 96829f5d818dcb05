"""After a campaign DVC has nothing to do, and after a change DVC runs what depends on it and nothing else."""

import json
import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import WaitingForPeople
from tests.project import Project


def stale_stages(project: Project) -> set[str]:
    return set(json.loads(project.must("dvc", "status", "--json")))


def change_strategy(project: Project) -> None:
    text = (project.root / "params.yaml").read_text()
    (project.root / "params.yaml").write_text(re.sub(r"strategy: \{.*?\}", "strategy: {name: margin}", text))


def test_campaign_leaves_dvc_nothing_to_do(project: Project) -> None:
    assert stale_stages(project) == set()
    assert (project.root / "report/index.html").stat().st_size > 50_000


def test_run_skips_a_finished_campaign(project: Project) -> None:
    before = project.lock
    output = project.must("codline", "run")
    assert "Everything is up to date." in output
    assert project.lock == before


def test_status_shows_each_cycle_with_its_labels_and_accuracy(project: Project) -> None:
    output = project.must("codline", "status")
    assert re.search(r"c1 .* 129 .* \d+\.\d% \[\d+\.\d, \d+\.\d\]", output)
    assert "Everything is up to date." in output


def test_status_shows_only_results_of_the_present_parameters(project: Project) -> None:
    change_strategy(project)
    output = project.must("codline", "status")
    assert re.search(r"c1 .* 129 .* \d+\.\d% .* train evaluate +. score select annotate merge diagnose", output)
    assert re.search(r"c2 [^\d%]* train evaluate", output)


def test_campaign_that_waits_for_people_reports_the_cycles_of_the_present_parameters(project: Project) -> None:
    stopped = project.run("codline", "run", "-S", "annotate.annotator={name: people}", "-S", "prepare.start=0.1")
    assert stopped.returncode == WaitingForPeople.exit_code
    page = (project.root / "report/index.html").read_text()
    assert "Label the 65 images in queries/c1, then run <code>codline run</code>." in page
    rows = (project.root / "report/curve.csv").read_text().split()
    assert [row.split(",")[0].strip('"') for row in rows] == ["cycle", "c1"]
    assert not (project.root / "cycles/c2/metrics.json").exists()
    assert re.search(r"cycles/c2/metrics.json[ -]*\n", project.must("dvc", "metrics", "show"))
    assert "report" not in stale_stages(project)


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
    change_strategy(project)
    assert stale_stages(project) == {"score@c1", "report"}  # the report names the strategy


def test_dvc_runs_only_new_stages_and_the_report_for_an_added_cycle(project: Project) -> None:
    raw = YAML().load(project.root / "params.yaml")
    raw |= params.cycle_chain(3)
    YAML().dump(raw, project.root / "params.yaml")
    new = {"score@c2", "select@c2", "annotate@c2", "merge@c2", "diagnose@c2", "train@c3", "evaluate@c3", "report"}
    assert stale_stages(project) <= new
    assert stale_stages(project)


def test_dvc_metrics_show_has_the_columns_that_a_person_reads(project: Project) -> None:
    head, *rows = project.must("dvc", "metrics", "show", "--md").splitlines()
    assert {"accuracy", "accuracy_low", "accuracy_high", "macro_f1", "validation_accuracy"} < {*head.split()}
    assert len(head.strip("|").split("|")) < 12
    assert [row.split()[1] for row in rows if "json" in row] == ["cycles/c1/metrics.json", "cycles/c2/metrics.json"]
    assert "train.epochs" in project.must("dvc", "params", "diff", "--all")


def test_dvc_plots_show_and_diff_need_no_network(project: Project) -> None:
    project.must("git", "add", "dvc.lock")
    project.must("git", "commit", "-qm", "results")
    names = {"learning_curve", "per_class", "confusion", "training"}
    for revisions in (["show"], ["diff", "HEAD", "workspace"]):
        project.must("dvc", "plots", *revisions)
        folder = project.root / "dvc_plots"
        page = (folder / "index.html").read_text()
        pictures = [folder / source for source in re.findall(r'<img src="([^"]*)"', page)]
        assert "script" not in page
        assert "http" not in page
        assert {Path(path.name.rpartition("_")[2]).stem for path in pictures} <= names | {"curve", "class"}
        assert len(pictures) >= 4
        assert all(path.read_text().startswith("<?xml") for path in pictures)


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


@pytest.mark.slow
def test_campaign_whose_pool_is_used_up_ends_early_and_says_so(project: Project) -> None:
    values = ("prepare.start=1000", "select.budget=200", "train.epochs=1", "score.strategy={name: core_set}")
    ended = project.run("codline", "run", "--cycles", "5", *(word for value in values for word in ("-S", value)))
    assert ended.returncode == 0, ended.stderr
    sentence = "every image of the pool has a label, so c3 is the last cycle; params.yaml has no c4, c5 any more"
    assert ended.stderr == f"codline: {sentence}\n"
    assert "select@c2: select.budget: found 200 images, but only 94 are left to select from" in ended.stdout
    assert list(params.parse_cycles(params.read_yaml(project.root / "params.yaml"))) == ["c1", "c2", "c3"]
    assert stale_stages(project) == set()
    page = (project.root / "report/index.html").read_text()
    assert "with 1,294 labels" in page
    assert "The campaign is complete." in page
    assert "Everything is up to date." in project.must("codline", "run")
