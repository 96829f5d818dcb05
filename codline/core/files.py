"""Atomic file writes: an output exists completely or not at all, also after a kill or on a full disk."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from codline.core.errors import DISK_ERRORS, DataError, StorageError, storage_error


def user_path(text: str) -> Path:
    """A path that a user has written; `~` is the home directory. params.yaml keeps it as it is written."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises for an unknown user)


@contextmanager
def atomic_write(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same directory, which replaces `path` on success and is deleted on failure.

    The temporary name is fixed, so that the next attempt overwrites what a kill left behind.
    `durable` calls fsync on the file and on its directory, which can take as long as a training batch; without it, a
    power failure may lose the file.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        created = make_directories(path.parent)
        yield part
        if durable:
            sync(part)
        part.replace(path)
        if durable:
            for directory in (path.parent, *(new.parent for new in created)):
                sync(directory)
    except BaseException as error:
        with suppress(OSError):  # of a disk that is read-only or failing; the next attempt overwrites it
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise storage_error(error, path) from error
        raise


def make_directories(directory: Path) -> list[Path]:
    """Create the directory and its parents where they are missing; returns those that were."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return missing


def sync(path: Path) -> None:
    """Call fsync on a file or a directory. What is durable then is a file's content, or a directory's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Call fsync on all files and directories in a directory, and on the directory."""
    for parent, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


@contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory, which replaces `directory` on success and is deleted on failure.

    Its files are durable before it gets its name.
    """
    part, old = (directory.with_name(f".{directory.name}{end}") for end in (".part", ".old.part"))
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        sync_tree(part)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, StorageError) and isinstance(error.__cause__, OSError):  # of a file in `part`
            raise storage_error(error.__cause__, directory) from error.__cause__
        raise
    if directory.exists():
        directory.replace(old)
    part.replace(directory)
    sync(directory.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it; nothing happens if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    return file_digest(path, "sha256")


def file_md5(path: Path) -> str:
    """The hash that DVC gives to a file."""
    return file_digest(path, "md5")


def file_digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_version(path: str) -> str:
    """Changes whenever the file does: size, modification time and inode; of a directory, of all files in it."""
    try:
        status = os.stat(path)  # noqa: PTH116 (called for every file of a directory)
    except OSError:
        return "absent"
    if not os.path.isdir(path):  # noqa: PTH112
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
    digest = hashlib.sha256()
    for directory, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            digest.update(
                f"{directory}/{name} {file_version(f'{directory}/{name}')}\n".encode(errors="surrogateescape")
            )
    return digest.hexdigest()
