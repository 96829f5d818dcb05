"""Gives each process that runs a model a GPU of its own, across campaigns and users of this machine."""

import contextlib
import os
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import IO

from codline.core.locks import try_lock

DRIVER = Path("/proc/driver/nvidia/gpus")  # one directory per GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_SECONDS = 0.2
_held: list[IO[str]] = []  # open until this process ends, which releases the lock


def visible_gpus() -> list[str]:
    """As CUDA reads the variable: numbers or names, of which an invalid one, such as -1, ends the list."""
    if VISIBLE in os.environ:
        names = [name.strip() for name in os.environ[VISIBLE].split(",")]
        return list(takewhile(lambda name: name and not name.startswith("-"), names))
    return [str(number) for number in range(len(list(DRIVER.iterdir())))] if DRIVER.is_dir() else []


def hide_gpus() -> None:
    """Leave this process no GPU. torch looks for GPUs before its first backward pass, on the CPU too."""
    os.environ[VISIBLE] = ""


def acquire_gpu() -> None:
    """Wait for a free GPU and make it the only visible one, until this process ends. Without GPUs, return at once.

    Call it before CUDA is initialized. One lock file per GPU, in a directory that all users can write to.
    """
    gpus = visible_gpus()
    if not gpus or _held:  # a process that runs several stages has one from its first
        return
    directory = Path(tempfile.gettempdir(), "codline-gpus")
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o1777)
    while True:
        for gpu in gpus:
            file = (directory / f"{gpu}.lock").open("a+")
            if try_lock(file):
                with contextlib.suppress(PermissionError):
                    os.fchmod(file.fileno(), 0o666)
                _held.append(file)
                os.environ[VISIBLE] = gpu
                return
            file.close()
        time.sleep(POLL_SECONDS)
