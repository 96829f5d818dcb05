"""The files beneath a folder that a user names: regular files with plain names, and no links that lead out of it.

Imports no library, because commands check folders with it before DVC reads them: DVC would wait for a pipe for ever,
and ends in a traceback at a name that is not UTF-8.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from codline.core.errors import DataError

NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # the last: bytes that are not UTF-8
Inode = tuple[int, int]


def input_files(path: Path, follow_links: bool) -> tuple[Path, list[str]]:
    """A folder and the files beneath it; of a single file, the folder that it is in and its name."""
    if path.is_file():
        return path.parent, [path.name]
    return path, list_files(path, follow_links)


def list_files(root: Path, follow_links: bool = True) -> list[str]:
    """All files beneath the folder, relative to it, sorted. `follow_links`: also those that lead out of it."""
    if not root.exists():
        raise DataError(f"{root}: not found; prepare.dataset names it, from {Path.cwd()}")
    if not root.is_dir() and not root.is_file():
        raise DataError(f"{root}: a pipe, socket or device, expected a file or a folder")
    if not root.is_dir():
        raise DataError(
            f"{root}: a file; expected a folder with images "
            "(for a Parquet file: prepare.dataset={name: parquet, ...})"
        )
    return sorted(walk(root, root, None if follow_links else os.path.realpath(root)))


def walk(
    root: Path, folder: Path, limit: str | None, prefix: str = "", parents: tuple[Inode, ...] = ()
) -> Iterator[str]:
    """Files beneath a folder. Links must stay beneath `limit`, if there is one. Hidden folders are checked, too."""
    try:
        status = folder.stat()
        inode = (status.st_dev, status.st_ino)
        if inode in parents:
            found = "a link to a folder that it lies in itself, so there is no end to it"
            raise DataError(f"{folder}: {found}; remove the link")
        entries = os.scandir(folder)
    except OSError as error:
        raise DataError(f"{folder}: this folder cannot be read ({os_reason(error)})") from error
    with entries:  # one at a time: a list of a million would take 300 MB
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if NOT_PLAIN.search(entry.name):
                raise DataError(f"{folder}: found the name {entry.name!r}, expected UTF-8 without control characters")
            if limit is not None and entry.is_symlink():
                refuse_outside(root, name, limit)
            if is_lost(entry) or entry.is_file():
                yield name
            elif entry.is_dir():
                files = walk(root, folder / entry.name, limit, f"{name}/", (*parents, inode))
                yield from (file for file in files if not entry.name.startswith("."))
            else:
                raise DataError(f"{root / name}: a pipe, socket or device, expected files and folders; remove it")


def refuse_outside(root: Path, name: str, limit: str) -> None:
    target = os.path.realpath(root / name)
    if os.path.commonpath([target, limit]) != limit:
        found = f"{root / name}: a link to {target}, outside of {root}"
        raise DataError(f"{found}; expected files in the folder, or scan.links=follow")


def is_lost(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link to nowhere or to itself, which is reported with the files that cannot be read."""
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 (called for every file)


def os_reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
