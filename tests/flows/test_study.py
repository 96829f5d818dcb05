"""The flow of a study: points run in parallel and share stages, a kill loses little, a failure stops no other point."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from codline.core.errors import Stopped, TrainingError
from codline.core.files import read_json, write_json
from tests.flows.test_deployments import post
from tests.project import Project, clone_with_small_campaign, kill, make_once, running_processes
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
        runs += post(project, "task_runs/filter", {"task_runs": {"name": {"like_": "tiny"}}})
        write_json(folder / "runs.json", [run["name"] for run in runs])
        alone = clone_with_small_campaign(folder / "alone", **api, **fork_server_environment, CODLINE_TRACKING="off")
        shutil.copy(study_folder(project) / "entropy-s1/params.yaml", alone.root)
        alone.must("codline", "run")
        shutil.move(alone.root / "dvc.lock", folder / "run.lock")
        shutil.rmtree(alone.root)

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
    """A stage that ran leaves a note of its time; one that was restored from the run cache does not."""
    assert len(list(study_folder(finished_study).glob(f"*/.codline/seconds/{stage}.json"))) == runs


def test_study_that_is_finished_runs_nothing_again(finished_study: Project) -> None:
    def modification_times() -> dict[str, int]:
        folder = study_folder(finished_study)
        return {path.name: path.stat().st_mtime_ns for path in [*folder.glob("*-s?.log"), *folder.glob("*-s?.json")]}

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


def test_study_shows_one_task_run_per_point(finished_study: Project) -> None:
    points = {f"tiny · {arm} · seed {seed}" for arm in ("random", "entropy") for seed in (0, 1)}
    assert {*read_json(finished_study.root.parent / "runs.json")} == {"tiny"} | points


def test_point_has_the_bytes_of_codline_run_and_dvc_finds_it_up_to_date(finished_study: Project) -> None:
    """finished_study has run the campaign of one point with `codline run`, in a clone with a cache of its own."""
    point = Project(study_folder(finished_study) / "entropy-s1")
    assert (point.root / "dvc.lock").read_bytes() == (finished_study.root.parent / "run.lock").read_bytes()
    assert point.must("dvc", "status", "--json").strip() == "{}"
    assert "Running stage" not in point.must("dvc", "repro")


def test_study_does_not_touch_the_campaign_of_the_project(finished_study: Project) -> None:
    assert finished_study.must("git", "status", "--porcelain").split() == ["??", "studies/tiny.yaml"]
    assert not (finished_study.root / "dvc.lock").exists()
    assert "studies" not in finished_study.must("dvc", "stage", "list")


@pytest.mark.parametrize("end", ["kill", "Ctrl-C", "kill worker"])
def test_study_that_is_ended_leaves_no_process_and_ends_with_the_same_bytes(
    untouched: Project, finished_study: Project, end: str
) -> None:
    (untouched.root / "studies/tiny.yaml").write_text(TINY.replace("[0, 1]", "[0]"))
    process = untouched.start("codline", "study", "tiny", "--jobs", "1")
    worktree = study_folder(untouched) / "random-s0"
    wait_for(lambda: (worktree / ".codline/seconds/train@c1.json").exists(), process)
    trained = (worktree / ".codline/seconds/train@c1.json").stat().st_mtime_ns
    if end == "kill worker":
        os.kill(workers(untouched)[0], signal.SIGKILL)
        assert process.wait(200) == 0, untouched.output
    else:
        if end == "kill":
            kill(process)
        else:
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) == Stopped.exit_code
            assert untouched.output.endswith("codline: stopped; run it again to go on from here\n")
        wait_for(lambda: not workers(untouched))
        assert not workers(untouched)
        assert not (worktree / "dvc.lock").exists()
        untouched.must("codline", "study", "tiny", "--jobs", "1")
    assert (worktree / ".codline/seconds/train@c1.json").stat().st_mtime_ns == trained
    for name in ("random-s0", "entropy-s0"):
        locks = [study_folder(project) / name / "dvc.lock" for project in (finished_study, untouched)]
        assert locks[0].read_bytes() == locks[1].read_bytes()


def workers(project: Project) -> list[int]:
    """Process ids of the study's workers."""
    points = [*study_folder(project).glob("*/")]
    return [pid for point in points for pid, command in running_processes(point).items() if "study_worker" in command]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 200
    while not condition() and time.monotonic() < deadline:
        assert process is None or process.poll() is None
        time.sleep(0.02)


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


def test_two_studies_at_once_share_stages_and_end_early_where_the_pool_is_used_up(untouched: Project) -> None:
    one_arm = TINY.replace("[random, entropy]", "[random]").replace("[0, 1]", "[0]")
    (untouched.root / "studies/tiny.yaml").write_text(one_arm)
    whole_pool = one_arm.replace("tiny", "whole").replace("epochs: 1,", "epochs: 1, select.budget: 1294,")
    (untouched.root / "studies/whole.yaml").write_text(whole_pool.replace("cycles: 2", "cycles: 4"))
    other = untouched.start("codline", "study", "tiny", "--jobs", "1")
    untouched.must("codline", "study", "whole", "--jobs", "1")
    assert other.wait(200) == 0, untouched.output
    folder = untouched.root / ".codline/studies"
    (point,) = read_json(folder / "whole/results.json")["points"]
    assert [cycle["cycle"] for cycle in point["curve"]] == ["c1", "c2"]
    assert len(list(folder.glob("*/*/.codline/seconds/train@c1.json"))) == 1
