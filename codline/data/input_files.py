"""The files that a dataset is read from, and manifests of them: every file with its size and hash.

A hash is kept with the inode, size and time of its file, so that one added photograph does not read all others again.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.core.files import file_sha256
from codline.data import tables
from codline.data.decoding import THREADS, bounded_map
from codline.data.folder_walk import input_files
from codline.runtime import state_directory
from codline.runtime.progress import progress_bar

KNOWN_HASHES = pa.schema(
    [
        pa.field("inode", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),  # of the last change, in nanoseconds
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
PROGRESS_FILES = 256  # between two progress notes
UNREADABLE = ""  # in place of a hash; whether such a file matters is for the dataset to decide


def scan_input(name: str, path: Path, follow_links: bool = True) -> pa.Table:
    """The manifest (tables.MANIFEST) of a folder, or of a single file. `follow_links`: those that lead out of it."""
    root, files = input_files(path, follow_links)
    marks = np.array([file_mark(f"{root}/{file}") for file in files], np.int64).reshape(-1, 3)
    hashes = known_hashes(name, marks)
    unknown = [row for row, known in enumerate(hashes) if known is None]
    with progress_bar(f"scan@{name}", "files", len(unknown)) as advance, ThreadPoolExecutor(THREADS) as threads:
        found = bounded_map(threads, hash_file, (root / files[row] for row in unknown))
        for done, (row, sha256) in enumerate(zip(unknown, found, strict=True), 1):
            hashes[row] = sha256
            if done % PROGRESS_FILES == 0:
                advance(done)
    keep_hashes(name, marks, hashes)
    return pa.table([files, marks[:, 1], hashes], schema=tables.MANIFEST)


def file_mark(path: str) -> tuple[int, int, int]:
    """Inode, size and time of the last change."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path takes four times as long)
    except OSError:
        return -1, -1, -1
    return status.st_ino, status.st_size, status.st_mtime_ns


def hash_file(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError:
        return UNREADABLE


def known_hashes(name: str, marks: np.ndarray) -> list[str | None]:
    """The hashes of files that have not changed since the last scan."""
    try:
        known = tables.read_table(known_hashes_path(name), KNOWN_HASHES)
    except DataError:  # there is none, or it is damaged
        return [None] * len(marks)
    if not len(known):
        return [None] * len(marks)
    columns = [known[column].to_numpy() for column in ("inode", "size", "time")]
    rows = np.minimum(np.searchsorted(columns[0], marks[:, 0]), len(known) - 1)
    same = np.all([column[rows] == mark for column, mark in zip(columns, marks.T, strict=True)], axis=0)
    hashes = known["sha256"].take(pa.array(rows)).to_pylist()
    return [sha256 if is_same else None for sha256, is_same in zip(hashes, same, strict=True)]


def keep_hashes(name: str, marks: np.ndarray, hashes: list[str | None]) -> None:
    inodes, rows = np.unique(marks[:, 0], return_index=True)
    rows = rows[(inodes >= 0) & np.array([hashes[row] != UNREADABLE for row in rows], bool)]
    columns = [*marks[rows].T, [hashes[row] for row in rows]]
    tables.write_table(pa.table(columns, schema=KNOWN_HASHES), KNOWN_HASHES, known_hashes_path(name))


def known_hashes_path(name: str) -> Path:
    return state_directory.state_root() / "scan" / f"{name}.parquet"


def check_manifests(inputs: dict[str, str], folder: Path) -> None:
    """Refuse inputs that are no longer as their manifests in `folder` say, and manifests of other inputs."""
    others = sorted(path for path in folder.glob("*.parquet") if path.stem not in inputs)
    if others:
        raise DataError(f"{others[0]}: not of an input in params.yaml; delete it, as `codline run` does")
    for name, path in inputs.items():
        manifest = tables.read_table(folder / f"{name}.parquet", tables.MANIFEST)
        now = scan_input(name, Path(path))
        if not now.equals(manifest):
            raise DataError(f"{path}: {first_difference(manifest, now)} since scan@{name} has read it; run again")


def first_difference(before: pa.Table, after: pa.Table) -> str:
    old, new = ({row.pop("file"): row for row in table.to_pylist()} for table in (before, after))
    file = min(file for file in old.keys() | new.keys() if old.get(file) != new.get(file))
    return f"{file} was {'added' if file not in old else 'removed' if file not in new else 'changed'}"
