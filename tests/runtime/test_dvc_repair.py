"""What a kill leaves of files that DVC writes in place is repaired; what another DVC command may be writing is not."""

import signal
import subprocess
from pathlib import Path

import pytest

from codline.core.locks import file_lock
from codline.runtime import background, dvc_repair, fork_server
from tests.workspace import REPOSITORY

COMMITTED = (REPOSITORY / "dvc.lock").read_bytes()
# Ends of lines. Without its last output (5 lines), the file is whole: DVC runs the stage again.
LINES = COMMITTED.splitlines(keepends=True)
LAST_LINES = [len(COMMITTED) - sum(map(len, LINES[-n:])) for n in (1, 2, 3, 4, 6, 7, 8, 9, 10)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (".codline", ".dvc/tmp", ".dvc/cache/runs/ab/abc"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("size", [0, 1, 20, 50, 8192, 3 * 8192, *LAST_LINES, len(COMMITTED) - 1])
def test_repair_restores_a_truncated_dvc_lock(here: Path, size: int) -> None:
    (here / "dvc.lock").write_bytes(COMMITTED[:size])
    (here / ".codline/dvc.lock").write_bytes(COMMITTED)
    dvc_repair.repair()
    assert (here / "dvc.lock").read_bytes() == COMMITTED


@pytest.mark.parametrize("other", [b"stages: 3\n", b"\xff", b"schema: '2.0'\nstages:\n  a:\n   : x: y"])
def test_repair_restores_a_dvc_lock_that_is_not_one(here: Path, other: bytes) -> None:
    (here / "dvc.lock").write_bytes(other)
    (here / ".codline/dvc.lock").write_bytes(COMMITTED)
    dvc_repair.repair()
    assert (here / "dvc.lock").read_bytes() == COMMITTED


@pytest.mark.parametrize("size", [0, 1, 20, 8192])
def test_repair_removes_a_truncated_dvc_lock_that_is_the_first_one(here: Path, size: int) -> None:
    dvc_repair.back_up_lock()
    (here / "dvc.lock").write_bytes(COMMITTED[:size])
    dvc_repair.repair()
    assert not (here / "dvc.lock").exists()


def test_damaged_backup_is_not_restored_and_is_replaced_by_the_next(here: Path) -> None:
    (here / ".codline/dvc.lock").write_bytes(b"\xa0" + COMMITTED)
    (here / "dvc.lock").write_bytes(COMMITTED[:50])
    dvc_repair.repair()
    assert (here / "dvc.lock").read_bytes() == COMMITTED[:50]
    (here / "dvc.lock").write_bytes(COMMITTED)
    dvc_repair.back_up_lock()
    assert (here / ".codline/dvc.lock").read_bytes() == COMMITTED


def test_repair_leaves_a_valid_dvc_lock_alone(here: Path) -> None:
    (here / "dvc.lock").write_bytes(COMMITTED)
    (here / ".codline/dvc.lock").write_bytes(COMMITTED.replace(b"prepare", b"other"))
    dvc_repair.repair()
    assert (here / "dvc.lock").read_bytes() == COMMITTED


def test_repair_removes_a_truncated_list_of_running_commands(here: Path) -> None:
    (here / ".dvc/tmp/rwlock").write_text('{"write": {')
    dvc_repair.repair()
    assert not (here / ".dvc/tmp/rwlock").exists()


def test_repair_keeps_run_cache_entries_and_removes_partial_ones(here: Path) -> None:
    runs = here / ".dvc/cache/runs/ab"
    for name in ("half/.x.tmp", "whole/entry", "whole/.x.tmp", ".x.part/entry/half"):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / name).write_text("cmd: echo\n")
    dvc_repair.repair()
    assert sorted(path.relative_to(runs).as_posix() for path in runs.rglob("*")) == ["whole", "whole/entry"]


def test_repair_leaves_the_run_cache_alone_while_a_study_writes_to_it(here: Path) -> None:
    with file_lock(here / ".codline/studies/small/lock"):
        dvc_repair.repair()
        assert (here / ".dvc/cache/runs/ab/abc").exists()
    dvc_repair.repair()
    assert not (here / ".dvc/cache/runs/ab/abc").exists()


@pytest.mark.parametrize("lock", ["lock", "rwlock.lock"])
def test_repair_touches_nothing_that_another_dvc_command_may_be_writing(here: Path, lock: str) -> None:
    (here / ".dvc/tmp/rwlock").write_text('{"write": {')
    with file_lock(here / ".dvc/tmp" / lock):
        dvc_repair.repair()
    assert (here / ".dvc/tmp/rwlock").exists()
    assert (here / ".dvc/cache/runs/ab/abc").exists()


def test_repair_creates_nothing_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dvc_repair.repair()
    assert not list(tmp_path.iterdir())


def test_fork_server_repairs_when_its_owner_is_killed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setattr(fork_server, "PRELOADED", [])
    with subprocess.Popen(["sleep", "60"]) as owner:
        server = fork_server.start(owner.pid)
        assert server is not None
        (here / ".dvc/tmp/rwlock").write_text('{"write": {')
        owner.send_signal(signal.SIGKILL)
        assert server.wait(10) == -signal.SIGKILL
    assert not (here / ".dvc/tmp/rwlock").exists()
    assert not (here / ".dvc/cache/runs/ab/abc").exists()


def test_stage_that_dvc_runs_backs_up_dvc_lock(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_STAGE", "train@c1")
    monkeypatch.setattr(fork_server, "start", lambda _: None)
    monkeypatch.setenv("CODLINE_TRACKING", "off")
    monkeypatch.delenv("CODLINE_OWNER", raising=False)
    (here / "dvc.lock").write_bytes(COMMITTED)
    background.start_for_dvc()
    assert (here / ".codline/dvc.lock").read_bytes() == COMMITTED
