"""Locks between processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codline.core.errors import BusyError
from codline.core.locks import KeyLocks, file_lock

HOLD_LOCK = """
import sys, time
from pathlib import Path
from codline.core.locks import file_lock
with file_lock(Path(sys.argv[1]), write_owner=True):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds tmp_path/lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_file_lock_refuses_a_held_lock_and_names_its_owner(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    sentence = f"^process {owner.pid} is busy with {{this}}$"
    with pytest.raises(BusyError, match=sentence), file_lock(tmp_path / "lock", "process {owner} is busy with {this}"):
        pass


def test_file_lock_waits_for_a_process_that_is_killed(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    with pytest.raises(BusyError), file_lock(tmp_path / "lock", wait=0.1):
        pass
    owner.kill()
    with file_lock(tmp_path / "lock", wait=30, write_owner=True):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_file_lock_can_be_taken_again_once_released(tmp_path: Path) -> None:
    for _ in range(2):
        with file_lock(tmp_path / "new" / "lock", write_owner=True):
            pass
    lock = tmp_path / "lock"
    with pytest.raises(BusyError, match="unknown"), file_lock(lock), file_lock(lock, "{owner}"):
        pass


def test_key_locks_are_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    path, keys = tmp_path / "keys.lock", ["ab" * 32, "cd" * 32]
    locks = KeyLocks(path)
    assert locks.try_lock(keys[0])
    program = (
        f"from codline.core.locks import KeyLocks; from pathlib import Path; locks = KeyLocks(Path({str(path)!r}))"
    )
    command = [sys.executable, "-c", f"{program}; print(*map(locks.is_free, {keys}))"]
    assert subprocess.check_output(command, text=True) == "False True\n"
    locks.unlock(keys[0])
    assert subprocess.check_output(command, text=True) == "True True\n"
