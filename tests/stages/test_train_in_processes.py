"""The stage train in several processes: same bytes after a kill, no process left, and all that it is combined with."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codline.core.errors import InfrastructureError, Stopped
from codline.engine.local_workers import PassWorker
from codline.learning import checkpoints
from codline.learning.auxiliary_networks import count_members, read_auxiliary, snapshot_steps
from codline.learning.checkpoints import Checkpoint
from codline.learning.fit import TrainingState
from codline.runtime import state_directory
from tests.project import restore_ctrl_c, running_processes
from tests.workspace import REPOSITORY, Workspace

pytestmark = pytest.mark.slow
WAIT_SECONDS = 200  # the fork server may still be importing torch
OBJECTIVES = [{"name": "ema", "buffers": "averaged"}, {"name": "cyclic"}, {"name": "ll4al", "width": 4}]


@pytest.fixture
def in_two(workspace: Workspace, fork_server_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name, value in fork_server_environment.items():
        monkeypatch.setenv(name, value)
    workspace.change(**{"train.processes": 2, "train.objectives": OBJECTIVES})
    workspace.change(**{"train.committee": 1, "train.snapshots": [2], "train.start_from": "fresh"})
    return workspace


def read_outputs(workspace: Workspace) -> list[bytes]:
    return [path.read_bytes() for path in workspace.outputs("train", "c2")]


def test_train_writes_the_same_bytes_after_one_of_its_processes_was_killed(
    in_two: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two.run("train", "c2")
    expected, workers = read_outputs(in_two), list[PassWorker]()
    auxiliary = read_auxiliary(in_two.path("train", "auxiliary", "c2"))
    assert (count_members(auxiliary), snapshot_steps(auxiliary)) == (1, [2])
    with monkeypatch.context() as patch:
        start, write = PassWorker.start, Checkpoint.write

        def recorded_start(worker: PassWorker) -> None:
            start(worker)
            workers.append(worker)

        def write_and_kill(self: Checkpoint, state: TrainingState) -> None:
            write(self, state)
            if state.epoch == 2:
                assert workers[0].process is not None
                workers[0].process.kill()

        patch.setattr(checkpoints, "INTERVAL_SECONDS", 0)
        patch.setattr(PassWorker, "start", recorded_start)
        patch.setattr(Checkpoint, "write", write_and_kill)
        for path in in_two.outputs("train", "c2"):
            path.unlink()
        shutil.rmtree(state_directory.state_root() / "checkpoints")
        with pytest.raises(InfrastructureError):
            in_two.run("train", "c2")
    assert not any(path.exists() for path in in_two.outputs("train", "c2"))
    (checkpoint,) = Path(".codline/checkpoints").glob("*/last.checkpoint")
    state = checkpoints.read_state(checkpoint)
    assert state is not None
    assert state.epoch == 2
    in_two.run("train", "c2")
    assert read_outputs(in_two) == expected


@contextmanager
def running_stage(workspace: Workspace) -> Iterator[subprocess.Popen[str]]:
    """A training that would take hours, once all of its processes train."""
    workspace.change(**{"train.epochs": 100_000, "train.committee": 0})
    arguments = workspace.pipeline.arguments("train", "c2").items()
    words = [word for name, value in arguments for word in (f"--{name.replace('_', '-')}", value)]
    stage = subprocess.Popen(
        [sys.executable, "-m", "stages", "train", *words],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=restore_ctrl_c,
    )
    try:
        wait_until(lambda: stage.poll() is not None or finished_epochs() > 1)
        assert stage.poll() is None, stage.communicate()[1]
        yield stage
    finally:
        stage.kill()
        stage.communicate()


def finished_epochs() -> int:
    return (state_directory.read_note("progress", "train@c2") or {"done": 0})["done"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes_of_training(workspace: Workspace) -> set[int]:
    """The command, and those that are forked from the server."""
    return set(running_processes(workspace.root)) - {os.getpid()}


def test_all_processes_end_with_a_stage_that_is_killed(in_two: Workspace) -> None:
    with running_stage(in_two) as stage:
        assert len(processes_of_training(in_two)) == 3
        stage.kill()
        wait_until(lambda: not processes_of_training(in_two))


def test_ctrl_c_ends_all_processes(in_two: Workspace) -> None:
    with running_stage(in_two) as stage:
        for process in processes_of_training(in_two):  # as a terminal does
            os.kill(process, signal.SIGINT)
        assert stage.wait(WAIT_SECONDS) == Stopped.exit_code
        wait_until(lambda: not processes_of_training(in_two))


def test_stage_ends_with_exit_code_7_when_one_of_its_processes_dies(in_two: Workspace) -> None:
    with running_stage(in_two) as stage:
        os.kill(max(processes_of_training(in_two)), signal.SIGKILL)
        _, output = stage.communicate(timeout=WAIT_SECONDS)
        assert stage.returncode == InfrastructureError.exit_code
        sentence = "a process of the training died; run it again to go on from the last checkpoint"
        assert output == f"codline: train@c2: {sentence}\n"
        wait_until(lambda: not processes_of_training(in_two))
