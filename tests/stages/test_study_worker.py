"""The worker of a study: what points share is computed once, and no stage depends on what ran before it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codline.core import params
from codline.core.errors import InfrastructureError, TrainingError
from codline.runtime.recorded_outputs import read_recorded_outputs
from stages.study_worker import StudyCache, run_point
from tests.bits import flip_bit
from tests.workspace import REPOSITORY, create_workspace

CODE_HASH = {"md5": "a" * 32, "size": 1}  # tests/flows/test_study.py compares dvc.lock with real hashes
SMALL = {"train.epochs": 1, "score.strategy": {"name": "random"}} | params.cycle_chain(2)
SHARED = {"prepare", "train@c1", "evaluate@c1"}


class Points:
    """Small campaigns in directories of their own, with one cache, run in this process."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, StudyCache(root / "cache", root / "stages.lock")

    def request(self, name: str, **changes: Any) -> dict[str, Any]:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        shutil.rmtree(folder / "data/inputs", ignore_errors=True)
        workspace = create_workspace(folder)
        workspace.change(**SMALL | changes)
        pipeline = workspace.pipeline
        dependencies = {path for stage in pipeline.stage_names() for path in pipeline.recorded(stage)[1]}
        code = {path for path in dependencies if path.startswith(("codline/", "stages/"))}
        return {"directory": str(folder), "dependencies": dict.fromkeys(code | {"data/inputs"}, CODE_HASH)}

    def run(self, name: str, **changes: Any) -> dict[str, Any]:
        with contextlib.chdir(self.root):
            return run_point(self.cache, self.request(name, **changes))

    def lock(self, name: str) -> bytes:
        return (self.root / name / "dvc.lock").read_bytes()

    def computed(self, name: str) -> set[str]:
        """The stages that ran there, and were not restored from the cache."""
        return {path.stem for path in (self.root / name / ".codline/seconds").glob("*.json")}


@pytest.fixture(scope="module")
def finished_points(tmp_path_factory: pytest.TempPathFactory) -> Points:
    """Three points, which have run in this order. Read only; `points` is a copy."""
    points = Points(tmp_path_factory.mktemp("points"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODLINE_QUIET", "1")
        assert "curve" in points.run("seed-1", seed=1)
        assert "curve" in points.run("random")
        assert "curve" in points.run("entropy", **{"score.strategy": {"name": "entropy"}})
    return points


@pytest.fixture
def points(finished_points: Points, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Points:
    monkeypatch.setenv("CODLINE_QUIET", "1")
    shutil.copytree(finished_points.root, tmp_path / "points")
    return Points(tmp_path / "points")


def forget(points: Points, name: str) -> bytes:
    """Remove the results of a point from everywhere but the cache; returns its dvc.lock."""
    lock = points.lock(name)
    shutil.rmtree(points.root / name)
    return lock


def test_stages_that_points_share_are_computed_once(finished_points: Points) -> None:
    assert finished_points.computed("seed-1") == finished_points.computed("random") >= SHARED
    assert finished_points.computed("entropy") == finished_points.computed("random") - SHARED


def test_point_has_the_same_bytes_whatever_ran_before_it_in_the_process(
    finished_points: Points, tmp_path: Path
) -> None:
    """In `finished_points`, another point ran before it; here it is the first one of a process."""
    request = Points(tmp_path).request("random") | {"log": str(tmp_path / "log")}
    settings = {"cache": str(tmp_path / "cache"), "locks": str(tmp_path / "stages.lock")}
    done = subprocess.run(
        [sys.executable, "-m", "stages.study_worker"],
        input=f"{json.dumps(settings)}\n{json.dumps(request)}\n",
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "CODLINE_QUIET": "1"},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert [row["cycle"] for row in json.loads(done.stdout)["curve"]] == ["c1", "c2"]
    assert Points(tmp_path).lock("random") == finished_points.lock("random")


def test_point_that_has_run_before_is_restored_from_the_cache(points: Points) -> None:
    lock = forget(points, "random")
    assert "curve" in points.run("random")
    assert points.computed("random") == set()
    assert points.lock("random") == lock


def test_damaged_object_in_the_cache_is_computed_again(points: Points) -> None:
    md5 = read_recorded_outputs(points.root / "random/dvc.lock")["cycles/c1/scores.parquet"].md5
    lock = forget(points, "random")
    flip_bit(points.cache.objects.path(md5), 100)
    assert "curve" in points.run("random")
    assert points.computed("random") == {"score@c1"}
    assert points.lock("random") == lock


def test_point_is_left_for_later_while_another_process_computes_its_stage(
    points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points.cache.locks, "try_lock", lambda _: False)
    assert list(points.run("other", seed=2)) == ["busy"]
    assert points.computed("other") == set()


def test_failed_stage_is_reported_and_the_stages_before_it_are_recorded(points: Points) -> None:
    answer = points.run("random", **{"train.learning_rate": 1.0e30})
    assert (answer["stage"], answer["exit_code"]) == ("train@c1", TrainingError.exit_code)
    assert answer["sentence"].startswith("train@c1: ")
    assert {out.stage for out in read_recorded_outputs(points.root / "random/dvc.lock").values()} == {"prepare"}
    assert "curve" in points.run("random")


def test_files_of_cycles_that_are_no_longer_in_params_yaml_are_removed(points: Points) -> None:
    assert "curve" in points.run("random", **params.cycle_chain(1))
    assert {path.name for path in (points.root / "random/cycles").glob("*/*")} >= {"metrics.json"}
    assert not list((points.root / "random/cycles/c2").glob("*"))
    assert not (points.root / "random/cycles/c1/scores.parquet").exists()


def test_stage_is_refused_if_an_input_changes_while_it_runs(points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    from stages import select

    def select_and_edit(*arguments: Any, **values: Any) -> None:
        original(*arguments, **values)
        Path("cycles/c1/outputs.parquet").touch()

    original = select.select
    select_and_edit.__annotations__, select_and_edit.__name__ = original.__annotations__, "select"
    monkeypatch.setattr(select, "select", select_and_edit)
    answer = points.run("other", seed=2)
    assert "outputs.parquet changed while select@c1 ran" in answer["sentence"]


@pytest.mark.slow
def test_point_that_trains_in_two_processes_has_the_same_bytes_again(
    points: Points, tmp_path: Path, fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fork_server_environment.items():
        monkeypatch.setenv(name, value)
    changes = {"train.processes": 2} | params.cycle_chain(1)
    assert "curve" in points.run("random", **changes)
    assert points.computed("random") >= {"train@c1"}
    alone = tmp_path / "alone"
    alone.mkdir()
    assert "curve" in Points(alone).run("random", **changes)
    assert Points(alone).lock("random") == points.lock("random")


def test_worker_ends_when_a_process_of_its_stage_dies_so_that_the_point_runs_in_another(
    points: Points, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def die(*_: Any) -> None:
        raise InfrastructureError("a process of the training died")

    monkeypatch.setattr("stages.runner.execute", die)
    with pytest.raises(SystemExit) as ended:
        points.run("other", seed=3)
    assert ended.value.code == InfrastructureError.exit_code
    assert capfd.readouterr().err == "codline: prepare: a process of the training died\n"
