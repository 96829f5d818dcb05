"""Worker processes of a study: one per section `compute`, replaced when killed; hashes are those of DVC."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from codline.core.errors import InfrastructureError
from codline.orchestration.dependency_hashes import DependencyHashes
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_workers import Worker
from codline.runtime.pipeline import Pipeline

POINT = StudyPoint("cod", 0, "")
# Answers every request with its process id, or dies.
PROGRAM = """
import json, os, signal, sys
for line in sys.stdin:
    if json.loads(line).get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps({"pid": os.getpid()}), flush=True)
"""


class Processes:
    """In place of StudyRunner: starts a small program instead of a worker."""

    def __init__(self) -> None:
        self.processes: set[subprocess.Popen[str]] = set()

    def start_process(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.add(process)
        return process


@pytest.fixture
def worker() -> Any:
    worker = Worker(Processes())  # type: ignore[arg-type]
    yield worker
    worker.end()


def request(threads: int = 1, **others: Any) -> dict[str, Any]:
    return {"compute": {"threads": threads}, "log": "point.log"} | others


def test_worker_has_one_process_for_points_with_the_same_compute_section(worker: Worker) -> None:
    pids = [worker.answer(request(threads), POINT)["pid"] for threads in (1, 1, 2, 2)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_worker_starts_another_process_when_its_own_was_killed(worker: Worker) -> None:
    first = worker.answer(request(), POINT)["pid"]
    os.kill(first, signal.SIGKILL)
    assert worker.answer(request(), POINT)["pid"] != first


def test_worker_gives_up_a_point_whose_process_dies_again_and_again(worker: Worker) -> None:
    with pytest.raises(InfrastructureError, match=r"cod, seed 0: it was killed or broke off \(-9\); see point.log"):
        worker.answer(request(die=True), POINT)
    assert worker.answer(request(), POINT)["pid"]


@pytest.mark.parametrize("is_link", [False, True])
def test_dependency_hashes_are_those_that_dvc_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """In the worktree of a point, inputs are links."""
    root, folder = tmp_path / "project", tmp_path / ("elsewhere" if is_link else "project/photos")
    (folder / "a/__pycache__").mkdir(parents=True)
    root.mkdir(exist_ok=True)
    for name in ("b.txt", "a/c.txt", "a/d.part", "a/__pycache__/e.pyc"):
        (folder / name).write_text(name)
    if is_link:
        (root / "photos").symlink_to(folder)
    monkeypatch.chdir(root)
    Repo.init(no_scm=True).close()
    (root / ".dvcignore").write_text("__pycache__/\n*.part\n")
    (root / "code.py").write_text("1\n")
    count = {"cmd": "ls photos > list", "deps": ["photos", "code.py"], "outs": ["list"]}
    YAML().dump({"stages": {"count": count, "use": {"cmd": "true", "deps": ["list"]}}}, root / "dvc.yaml")
    (root / "params.yaml").write_text("cycles: {}\nqueries: {}\n")
    DvcStages().reproduce("count")
    recorded = YAML(typ="safe").load(root / "dvc.lock")["stages"]["count"]["deps"]
    hashes = DependencyHashes(root).of_point(Pipeline(root))
    assert [{"path": path, "hash": "md5"} | info for path, info in hashes.items()] == recorded
