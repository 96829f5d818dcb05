"""Public files: fetched with progress, resumed where they broke off, checked, and under their own name only once they are whole."""

import fcntl
import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from codline.core.errors import DataError, StorageError
from codline.core.files import DISK_REFUSALS, whole, whole_folder
from codline.runtime.progress import bar

TRIES = 4  # in a row that bring no byte
PAUSE = 1.0  # seconds before the second of them; twice as long before each further one
PATIENCE = 30.0  # seconds for a server to say something
BLOCK = 1 << 18
EVERY = 0.5  # seconds between two notes of progress: each is a file
MEGABYTE = 1_000_000
NO_MORE = 416  # what a server says when we have all that it has
WORTH_ANOTHER_TRY = {408, 425, 429, NO_MORE}  # of the answers from 400 to 499


class WrongBytes(Exception):  # noqa: N818 (never leaves this file)
    """All came, and it is not the file."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time: campaigns that run beside each other share their raw files."""
    with refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror or error}; prepare.dataset.root says where raw files go"
        ) from error


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def fetched(path: Path, url: str, md5: str, allowed: bool = True) -> Path:
    """`path`, holding the bytes with this md5. Where they cannot be had, one sentence says what to put where."""
    if path.is_file() and checksum(path) == md5:
        return path
    found = f"{path}: {'is not the file that is expected' if path.exists() else 'not found'}"
    by_hand = f"put {url} (md5 {md5}) there"
    if not allowed:
        raise DataError(f"{found}, and prepare.dataset.download is false; {by_hand}")
    part = path.with_name(f"{path.name}.part")
    with refusals(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        persistently(lambda: received(part, url, md5), lambda: size(part))
    except WrongBytes as error:
        raise DataError(f"{found}, and {url} sends other bytes (md5 {error}); {by_hand} from another source") from error
    except (OSError, http.client.HTTPException) as error:
        if refused(error):
            raise StorageError(
                f"{path}: cannot be written: {reason(error)}; free some space and run again to go on"
            ) from error
        raise DataError(
            f"{found}, and the download failed ({reason(error)}); {by_hand}, or run again to go on with it"
        ) from error
    part.replace(path)
    return path


def persistently(act: Callable[[], None], size: Callable[[], int]) -> None:
    """Try again while the connection fails; as long as bytes come, any number of times."""
    left = TRIES
    while True:
        before = size()
        try:
            return act()
        except (OSError, http.client.HTTPException) as error:
            left = TRIES if size() > before else left - 1
            if left == 0 or final(error):
                raise
            time.sleep(PAUSE * 2 ** (TRIES - 1 - min(left, TRIES - 1)))


def final(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in WORTH_ANOTHER_TRY
    return refused(error)


def refused(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_REFUSALS


def reason(error: Exception) -> str:
    """Without a full stop or a line break in it."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    cause = getattr(error, "reason", error)  # of a URLError, what the socket said
    return " ".join(str(getattr(cause, "strerror", None) or cause).split()).rstrip(".") or type(error).__name__


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def received(part: Path, url: str, md5: str) -> None:
    """Go on with `part` until it is the file."""
    had = size(part)
    resumed = had > 0
    try:
        headers = {"User-Agent": "codline"} | ({"Range": f"bytes={had}-"} if resumed else {})
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as response:
            resumed = response.status == http.client.PARTIAL_CONTENT
            append(part, response, had if resumed else 0)
    except urllib.error.HTTPError as error:
        if error.code != NO_MORE:
            raise
    found = checksum(part)
    if found != md5:
        part.unlink()
        raise OSError("what had come before was of another file") if resumed else WrongBytes(found)


def append(part: Path, response: http.client.HTTPResponse, start: int) -> None:
    total = start + int(response.headers.get("Content-Length", 0))
    told = 0.0
    with part.open("ab" if start else "wb") as file, bar("prepare", "MB", total // MEGABYTE) as advance:
        while block := response.read(BLOCK):
            file.write(block)
            if time.monotonic() - told > EVERY:
                advance(file.tell() // MEGABYTE, file=part.stem)
                told = time.monotonic()
        file.flush()
        os.fsync(file.fileno())
    if size(part) < total:  # a read of so many bytes does not complain of fewer
        raise OSError(f"it broke off after {size(part):,} of {total:,} bytes")


def unpacked(archive: IO[bytes], folder: Path) -> None:
    """Take the folder of this name out of a tar archive; it appears whole or not at all."""
    with whole_folder(folder) as part, tarfile.open(fileobj=archive) as tar:
        tar.extractall(part, members=beneath(tar, folder.name), filter="data")


def beneath(tar: tarfile.TarFile, top: str) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if top in parts[:-1]:
            yield member.replace(name=str(PurePosixPath(*parts[parts.index(top) + 1 :])), deep=False)


def gunzipped(archive: Path, path: Path) -> None:
    with gzip.open(archive) as packed, whole(path) as part, part.open("wb") as file:
        shutil.copyfileobj(packed, file)
