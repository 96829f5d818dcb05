"""Atomic file writes: an output exists completely or not at all, also after a kill or on a full disk."""

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

DISK_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


@contextmanager
def atomic_write(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same directory, which replaces `path` on success and is deleted on failure.

    The temporary name is fixed, so that the next attempt overwrites what a kill left behind.
    `durable` calls fsync first, which can take as long as a training batch; without it, a power failure may lose
    the file.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        if durable:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in DISK_WRITE_ERRORS:
            reason = f"{path}: cannot be written: {os.strerror(error.errno)}"
            raise StorageError(f"{reason}; free some space and run again, nothing was left half-written") from error
        raise


@contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory, which replaces `directory` on success and is deleted on failure."""
    part, old = (directory.with_name(f".{directory.name}{end}") for end in (".part", ".old.part"))
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if directory.exists():
        directory.replace(old)
    part.replace(directory)
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    with atomic_write(path, durable) as part:
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


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
