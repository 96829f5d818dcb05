"""Images for a training in several processes, which note who reads them. Imports nothing slow."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codline.core.errors import DataError

READS = 9  # of another process before something happens there: two in rehearsal, six in the first epoch, then this one


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise DataError("images.arrow: has no row with id 7")


def run_out_of_memory() -> None:
    raise MemoryError


@dataclass(frozen=True)
class WatchedImages:
    pixels: np.ndarray
    folder: Path  # gets a file for every process that reads images, named by its id
    owner: int  # the process in which nothing happens
    event: Callable[[], None] | None = None

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        path = self.folder / str(os.getpid())
        with path.open("ab") as file:
            file.write(b".")
        if self.event is not None and os.getpid() != self.owner and path.stat().st_size == READS:
            self.event()
        images: np.ndarray = self.pixels[ids]
        return images

    def others(self) -> list[int]:
        """The other processes that have read images."""
        return [int(path.name) for path in self.folder.iterdir() if int(path.name) != self.owner]
