"""Files that appear whole or not at all."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codline.core.errors import DataError, StorageError

DISK_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


@contextmanager
def whole(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary neighbour of `path` that takes its name only once it is complete and on disk.

    The temporary name is fixed, so that what a kill leaves behind is overwritten by the next try. What is not durable may be lost with the machine's power,
    but not with a process: waiting for a disk can take as long as a batch.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        if error.errno in DISK_REFUSALS:
            why = os.strerror(error.errno)
            raise StorageError(
                f"{path}: cannot be written: {why}; free some space and run again, nothing was left half-written"
            ) from error
        raise
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `folder` that takes its name, and its place, only once it is complete."""
    part, old = (folder.with_name(f".{folder.name}{end}") for end in (".part", ".old.part"))
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if folder.exists():
        folder.replace(old)
    part.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    with whole(path, durable) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", durable)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found") from error
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
