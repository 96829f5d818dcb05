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


def try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
