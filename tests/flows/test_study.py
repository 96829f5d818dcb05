"""The flow of a study: points run in parallel and share stages, a kill loses little, a failure stops no other point."""

import sqlite3
import time
from pathlib import Path

import pytest

from codline.core.errors import TrainingError
from codline.core.files import read_json, write_json
from codline.orchestration.worktrees import has_finished
from tests.flows.test_deployments import post
from tests.project import Project, clone_with_small_campaign, kill, make_once, running_commands
from tests.tiny_study import TINY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def finished_study(
    api: dict[str, str], fork_server_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """A project in which a study of two arms and two seeds has run, with MLflow. Shared by all test workers."""

    def make(folder: Path) -> None:
        project = clone_with_small_campaign(folder / "codline", **api, **fork_server_environment)
        (project.root / "studies/tiny.yaml").write_text(TINY)
        project.must("codline", "study", "tiny", "--jobs", "2", timeout=580)
        # From this worker's server: other workers, which share the project, have servers of their own.
        runs = post(project, "flow_runs/filter", {"flow_runs": {"name": {"like_": "tiny"}}})
        write_json(folder / "flow_runs.json", [run["name"] for run in runs])

    return Project(make_once(tmp_path_factory, "finished_study", make) / "codline", **api, **fork_server_environment)


def study_folder(project: Project) -> Path:
    return project.root / ".codline/studies/tiny"


def test_study_writes_results_of_every_point(finished_study: Project) -> None:
    folder = study_folder(finished_study)
    results = read_json(folder / "results.json")
    assert [(arm["arm"], arm["n"], arm["area"]["n"]) for arm in results["arms"]] == [
        ("random", 2, 2),
        ("entropy", 2, 2),
    ]
    assert results["arms"][1]["difference"]["final"]["n"] == 2
    assert results["commit"] == finished_study.must("git", "rev-parse", "HEAD").strip()
    points = {(point["arm"], point["seed"], len(point["curve"])) for point in results["points"]}
    assert points == {(arm, seed, 2) for arm in ("random", "entropy") for seed in (0, 1)}
    assert len((folder / "results.csv").read_text().splitlines()) == 9
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "random (n = 2)" in (folder / "figure.svg").read_text()


@pytest.mark.parametrize(("stage", "runs"), [("prepare", 2), ("train@c1", 2), ("score@c1", 4), ("train@c2", 4)])
def test_study_computes_shared_stages_once_per_seed(finished_study: Project, stage: str, runs: int) -> None:
    """A stage that ran leaves a note of its time; one that DVC restored from its run cache does not."""
    assert len(list(study_folder(finished_study).glob(f"*/.codline/seconds/{stage}.json"))) == runs


def test_study_that_is_finished_runs_nothing_again(finished_study: Project) -> None:
    def modification_times() -> dict[str, int]:
        folder = study_folder(finished_study)
        return {path.name: path.stat().st_mtime_ns for path in [*folder.glob("*.log"), *folder.glob("*-s?.json")]}

    before = modification_times()
    assert len(before) == 8
    assert "4 points, 4 of them done" in finished_study.must("codline", "study", "tiny")
    assert modification_times() == before


def test_study_logs_its_points_to_the_mlflow_of_the_project(finished_study: Project) -> None:
    tags = (
        "select arm.value, seed.value from tags arm join tags seed using (run_uuid)"
        " where arm.key = 'codline.study.tiny' and seed.key = 'codline.seed'"
    )
    with sqlite3.connect(finished_study.root / "mlflow.db") as database:
        assert sorted(database.execute(tags)) == [(arm, seed) for arm in ("entropy", "random") for seed in "01"]
        assert {row[0] for row in database.execute("select distinct status from runs")} == {"FINISHED"}
    assert (finished_study.root / "mlartifacts").exists()
    assert not list(study_folder(finished_study).glob("*/mlartifacts"))


def test_study_names_the_flow_runs_of_its_points(finished_study: Project) -> None:
    points = {f"tiny · {arm} · seed {seed}" for arm in ("random", "entropy") for seed in (0, 1)}
    cycles = {f"{name} · {cycle}" for name in points for cycle in ("c1", "c2")}
    assert {*read_json(finished_study.root.parent / "flow_runs.json")} == {"tiny"} | points | cycles


def test_study_does_not_touch_the_campaign_of_the_project(finished_study: Project) -> None:
    assert finished_study.must("git", "status", "--porcelain").split() == ["??", "studies/tiny.yaml"]
    assert not (finished_study.root / "dvc.lock").exists()
    assert "studies" not in finished_study.must("dvc", "stage", "list")


def test_study_that_is_killed_leaves_no_process_and_resumes_to_the_same_results(
    untouched: Project, finished_study: Project
) -> None:
    (untouched.root / "studies/tiny.yaml").write_text(TINY.replace("[0, 1]", "[0]"))
    process = untouched.start("codline", "study", "tiny", "--jobs", "1")
    worktrees = [study_folder(untouched) / name for name in ("random-s0", "entropy-s0")]
    deadline = time.monotonic() + 200
    while not has_finished(worktrees[0], "train@c1") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None
    kill(process)
    deadline = time.monotonic() + 30
    while any(running_commands(worktree) for worktree in worktrees) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [running_commands(worktree) for worktree in worktrees] == [[], []]
    training_note = worktrees[0] / ".codline/seconds/train@c1.json"
    trained = training_note.stat().st_mtime_ns

    untouched.must("codline", "study", "tiny", "--jobs", "1")
    assert training_note.stat().st_mtime_ns == trained
    uninterrupted, resumed = (
        {(point["arm"], point["seed"]): point["curve"] for point in read_json(folder / "results.json")["points"]}
        for folder in (study_folder(finished_study), study_folder(untouched))
    )
    assert resumed == {key: curve for key, curve in uninterrupted.items() if key[1] == 0}


def test_study_goes_on_after_a_point_fails(untouched: Project) -> None:
    arms = "arms: {bad: {train.learning_rate: 1.0e+30}, good: {}}"
    text = TINY.replace("axes: {score.strategy.name: [random, entropy]}", arms)
    text = text.replace("cycles: 2", "cycles: 1").replace("[0, 1]", "[0]")
    (untouched.root / "studies/tiny.yaml").write_text(text)
    done = untouched.run("codline", "study", "tiny", "--jobs", "1")
    assert done.returncode == TrainingError.exit_code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("codline: bad, seed 0: train@c1: ")
    assert line.endswith("; 1 of 2 points are done, run it again to go on")
    assert [arm["n"] for arm in read_json(study_folder(untouched) / "results.json")["arms"]] == [0, 1]
