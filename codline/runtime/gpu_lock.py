"""Gives each process that runs a model a GPU of its own, across campaigns and users of this machine."""

import contextlib
import os
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import IO

from codline.core.errors import UserError
from codline.core.locks import try_lock

DRIVER = Path("/proc/driver/nvidia/gpus")  # one directory per GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_SECONDS = 0.2
_held: dict[str, IO[str]] = {}  # files of the GPUs, open until this process ends, which releases the locks


def visible_gpus() -> list[str]:
    """As CUDA reads the variable: numbers or names, of which an invalid one, such as -1, ends the list."""
    if VISIBLE in os.environ:
        names = [name.strip() for name in os.environ[VISIBLE].split(",")]
        return list(takewhile(lambda name: name and not name.startswith("-"), names))
    return [str(number) for number in range(len(list(DRIVER.iterdir())))] if DRIVER.is_dir() else []


def hide_gpus() -> None:
    """Leave this process no GPU. torch looks for GPUs before its first backward pass, on the CPU too."""
    os.environ[VISIBLE] = ""


def held_gpus() -> list[str]:
    """Those that this process has locked, its own first; the others are for the processes that it starts."""
    return list(_held)


def acquire_gpus(count: int = 1) -> None:
    """Wait for free GPUs, until this process ends, and make the first the only visible one. Without GPUs, return.

    Call it before CUDA is initialized. One lock file per GPU, in a directory that all users can write to.
    """
    gpus = visible_gpus()
    if not gpus or len(_held) >= count:  # a process that runs several stages has one from its first
        return
    if _held:
        found = f"params.yaml: train.processes: found {count} in a study on GPUs, whose workers have one each"
        raise UserError(f"{found}; expected 1, and as many --jobs as there are GPUs")
    if count > len(gpus):
        found = f"params.yaml: train.processes: found {count}, but this machine shows {len(gpus)} GPUs"
        raise UserError(f"{found}; expected at most {len(gpus)}, one for each process")
    directory = Path(tempfile.gettempdir(), "codline-gpus")
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o1777)
    # One process at a time collects several, so that no two wait for each other's.
    with wait_for_lock(directory / "several") if count > 1 else contextlib.nullcontext():
        while len(_held) < count:
            for gpu in gpus:
                if gpu not in _held and (file := lock_file(directory / f"{gpu}.lock")):
                    _held[gpu] = file
                    break
            else:
                time.sleep(POLL_SECONDS)
    os.environ[VISIBLE] = held_gpus()[0]


def wait_for_lock(path: Path) -> IO[str]:
    while (file := lock_file(path)) is None:
        time.sleep(POLL_SECONDS)
    return file


def lock_file(path: Path) -> IO[str] | None:
    """The locked file, which all users can lock; None if another process has locked it."""
    file = path.open("a+")
    if not try_lock(file):
        file.close()
        return None
    with contextlib.suppress(PermissionError):
        os.fchmod(file.fileno(), 0o666)
    return file
