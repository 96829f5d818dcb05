"""Jobs for worker processes. They import nothing slow."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from codline.core.errors import DataError

MARK = "CODLINE_TEST_MARK"


def mark_environment(value: str) -> None:
    os.environ[MARK] = value


def squares() -> Callable[[int], int]:
    return lambda item: item * item


def places() -> Callable[[int], tuple[int, str, str]]:
    """Where an item is computed: process, directory, what `setup` has set."""
    return lambda _: (os.getpid(), str(Path.cwd()), os.environ[MARK])


def niceness() -> Callable[[int], int]:
    return os.nice


def kilobytes() -> Callable[[int], bytes]:
    return lambda item: bytes(item * 1000)


def long_naps() -> Callable[[Path], None]:
    return write_process_and_sleep


def write_process_and_sleep(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(300)


class Death:
    """Squares, but an item in `deadly` kills its process as long as fewer than `times` processes have died of it."""

    def __init__(self, folder: Path, deadly: set[int], times: int) -> None:
        self.folder, self.deadly, self.times = folder, deadly, times

    def __call__(self) -> Callable[[int], int]:
        return self.compute

    def compute(self, item: int) -> int:
        deaths = len(list(self.folder.glob(f"{item}-*")))
        if item in self.deadly and deaths < self.times:
            (self.folder / f"{item}-{deaths}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item


def failures() -> Callable[[str], None]:
    return fail


def fail(kind: str) -> None:
    if kind == "data":
        raise DataError("images/00000.arrow: has no row with id 7")
    if kind == "disk":
        raise RuntimeError("cannot write") from OSError(errno.ENOSPC, "No space left on device", "file")
    if kind == "not picklable":
        raise Unpicklable(lambda: None)
    raise ZeroDivisionError("division by zero")


class Unpicklable(Exception):  # noqa: N818
    pass
