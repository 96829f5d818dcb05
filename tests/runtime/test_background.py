"""Background processes: started once per campaign or DVC process, and ended with it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from codline.runtime import background, fork_server
from codline.runtime.background import Background, start_for_dvc
from codline.runtime.process_lifetime import OWNER, ancestors


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_STAGE", OWNER, fork_server.SOCKET, "CODLINE_TRACKING", "CODLINE_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes that are started, which are not really started."""
    started = list[str]()

    def start_server(owner: int) -> None:
        started.append(f"server of {owner}")
        path = fork_server.socket_path(owner)
        path.parent.mkdir(exist_ok=True)
        path.touch()

    monkeypatch.setattr(fork_server, "start", start_server)
    monkeypatch.setattr(background, "start_follower", lambda *arguments: started.append(f"follower {arguments}"))
    return started


def replace_follower(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = Path("python").resolve()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_stop_sends_the_follower_a_line_and_returns_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_follower(monkeypatch, 'read line; echo "$@: $line" >&2')
    processes = Background()
    processes.start_follower()
    assert processes.stop() == "-m codline.tracking follow: finish"
    assert processes.stop() == "", "no follower is left"


def test_stop_returns_the_messages_of_a_follower_that_has_ended_already(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_follower(monkeypatch, "echo MLflow did not answer >&2")
    processes = Background()
    processes.start_follower()
    assert processes.follower is not None
    processes.follower.wait()
    assert processes.stop() == "MLflow did not answer"


def test_stop_kills_a_follower_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_follower(monkeypatch, "exec sleep 60")
    processes = Background()
    processes.start_follower()
    follower = processes.follower
    assert follower is not None
    assert processes.stop(0.2) == "MLflow took longer than 0 s; run `codline track` later"
    assert follower.returncode == -signal.SIGKILL


def test_start_follower_starts_one_unless_tracking_is_off(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODLINE_TRACKING", "off")
    Background().start_follower()
    assert started == []
    monkeypatch.setenv("CODLINE_TRACKING", "on")
    Background().start_follower()
    assert started == ["follower ()"]


def test_start_server_uses_the_server_of_the_study_if_there_is_one(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fork_server.SOCKET, "study.sock")
    Background().start_server()
    assert started == []


def test_start_for_dvc_starts_both_processes_once_for_each_dvc_process(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dvc = ancestors()[-1]
    monkeypatch.setenv("DVC_STAGE", "train@c1")
    start_for_dvc()
    start_for_dvc()
    assert started == [f"server of {dvc}", f"follower ('--owner', '{dvc}')"]


def test_start_for_dvc_starts_no_follower_if_tracking_is_off(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_STAGE", "train@c1")
    monkeypatch.setenv("CODLINE_TRACKING", "off")
    start_for_dvc()
    assert started == [f"server of {ancestors()[-1]}"]


@pytest.mark.parametrize("environment", [{}, {"DVC_STAGE": "train@c1", OWNER: str(os.getpid())}])
def test_start_for_dvc_does_nothing_outside_dvc_or_inside_a_campaign(
    started: list[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    start_for_dvc()
    assert started == []
