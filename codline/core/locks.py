"""Locks between processes, held through the kernel: a process that dies, even by SIGKILL, releases its locks."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from codline.core.errors import BusyError

POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, busy: str = "", wait: float = 0.0, write_owner: bool = False) -> Iterator[None]:
    """Hold an exclusive `flock` on `path`, which is created if missing.

    Waits up to `wait` seconds (`math.inf`: without limit) for another process, then raises BusyError with the
    sentence `busy`, in which `{owner}` becomes the content of the lock file: the process id of its owner, if that
    process used `write_owner`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait
    with path.open("a+") as file:  # "a+": opening must not erase the id that the current owner has written
        while not try_lock(file):
            if time.monotonic() >= deadline:
                file.seek(0)
                raise BusyError(busy.replace("{owner}", file.read().strip() or "unknown"))
            time.sleep(POLL_SECONDS)
        if write_owner:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


class KeyLocks:
    """Locks by key in one file: each is a lock on one byte, so that there is nothing to clean up."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # open until this process ends

    def try_lock(self, key: str) -> bool:
        """`key` is hexadecimal. A process that holds the lock gets it again."""
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(key[:15], 16))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock(self, key: str) -> None:
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, int(key[:15], 16))

    def is_free(self, key: str) -> bool:
        is_free = self.try_lock(key)
        if is_free:
            self.unlock(key)
        return is_free


def try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
