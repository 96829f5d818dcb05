"""Downloads of public files: resumable, verified by MD5, and renamed to their final name only when complete."""

import gzip
import hashlib
import http.client
import math
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

from codline.core.errors import DISK_ERRORS, DataError, StorageError
from codline.core.files import atomic_directory, atomic_write
from codline.core.locks import file_lock
from codline.runtime.progress import progress_bar

MAX_FAILED_TRIES = 4  # consecutive tries that receive nothing
FIRST_PAUSE_SECONDS = 1.0  # before the second try; doubled before each further one
TIMEOUT_SECONDS = 30.0  # for the server to send something
READ_BYTES = 1 << 18
PROGRESS_SECONDS = 0.5  # between two progress notes, each of which writes a file
MEGABYTE = 1_000_000
RANGE_NOT_SATISFIABLE = 416  # the answer if the partial file is complete already
RETRIED_CLIENT_ERRORS = {408, 425, 429, RANGE_NOT_SATISFIABLE}


class ChecksumMismatch(Exception):  # noqa: N818 (never leaves this file)
    """The complete download has another MD5, which is the message."""


@contextmanager
def download_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time download to `folder`: campaigns share raw files."""
    with translate_storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    with file_lock(folder / ".lock", wait=math.inf):
        yield


@contextmanager
def translate_storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise StorageError(f"{reason}; prepare.dataset.root says where raw files go") from error


def md5_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def fetch_file(path: Path, url: str, md5: str, allowed: bool = True) -> Path:
    """Download `url` to `path`, unless a file with this MD5 is there. Errors say which file to put where by hand."""
    if path.is_file() and md5_checksum(path) == md5:
        return path
    found = f"{path}: {'is not the file that is expected' if path.exists() else 'not found'}"
    by_hand = f"put {url} (md5 {md5}) there"
    if not allowed:
        raise DataError(f"{found}, and prepare.dataset.download is false; {by_hand}")
    part = path.with_name(f"{path.name}.part")
    with translate_storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        retry(lambda: receive(part, url, md5), lambda: file_size(part))
    except ChecksumMismatch as error:
        raise DataError(f"{found}, and {url} sends other bytes (md5 {error}); {by_hand} from another source") from error
    except (OSError, http.client.HTTPException) as error:
        reason = describe_error(error)
        if is_disk_error(error):
            raise StorageError(
                f"{path}: cannot be written: {reason}; free some space and run again to go on"
            ) from error
        failed = f"{found}, and the download failed ({reason})"
        raise DataError(f"{failed}; {by_hand}, or run again to go on with it") from error
    part.replace(path)
    return path


def retry(attempt: Callable[[], None], received_bytes: Callable[[], int]) -> None:
    """Repeat `attempt` after connection errors; only tries that receive nothing count towards MAX_FAILED_TRIES."""
    tries_left = MAX_FAILED_TRIES
    while True:
        before = received_bytes()
        try:
            return attempt()
        except (OSError, http.client.HTTPException) as error:
            tries_left = MAX_FAILED_TRIES if received_bytes() > before else tries_left - 1
            if tries_left == 0 or is_final(error):
                raise
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (MAX_FAILED_TRIES - 1 - min(tries_left, MAX_FAILED_TRIES - 1)))


def is_final(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in RETRIED_CLIENT_ERRORS
    return is_disk_error(error)


def is_disk_error(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_ERRORS


def describe_error(error: Exception) -> str:
    """The reason as part of a sentence: on one line, without a full stop."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    cause = getattr(error, "reason", error)  # a URLError wraps the socket's error
    return " ".join(str(getattr(cause, "strerror", None) or cause).split()).rstrip(".") or type(error).__name__


def file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def receive(part: Path, url: str, md5: str) -> None:
    """Download the rest of the partial file, and verify it."""
    start = file_size(part)
    resumed = start > 0
    try:
        headers = {"User-Agent": "codline"} | ({"Range": f"bytes={start}-"} if resumed else {})
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            resumed = response.status == http.client.PARTIAL_CONTENT
            append_response(part, response, start if resumed else 0)
    except urllib.error.HTTPError as error:
        if error.code != RANGE_NOT_SATISFIABLE:
            raise
    found = md5_checksum(part)
    if found != md5:
        part.unlink()
        # The beginning may be of another file: an OSError makes retry() start over.
        raise OSError("what had come before was of another file") if resumed else ChecksumMismatch(found)


def append_response(part: Path, response: http.client.HTTPResponse, start: int) -> None:
    total = start + int(response.headers.get("Content-Length", 0))
    last_progress = 0.0
    with part.open("ab" if start else "wb") as file, progress_bar("prepare", "MB", total // MEGABYTE) as advance:
        while data := response.read(READ_BYTES):
            file.write(data)
            if time.monotonic() - last_progress > PROGRESS_SECONDS:
                advance(file.tell() // MEGABYTE, file=part.stem)
                last_progress = time.monotonic()
        file.flush()
        os.fsync(file.fileno())
    if file_size(part) < total:  # read() with a size does not raise when the connection ends early
        raise OSError(f"it broke off after {file_size(part):,} of {total:,} bytes")


def extract_directory(archive: IO[bytes], directory: Path) -> None:
    """Extract the directory of this name, wherever it is in a tar archive."""
    with atomic_directory(directory) as part, tarfile.open(fileobj=archive) as tar:
        tar.extractall(part, members=members_beneath(tar, directory.name), filter="data")


def members_beneath(tar: tarfile.TarFile, top: str) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if top in parts[:-1]:
            yield member.replace(name=str(PurePosixPath(*parts[parts.index(top) + 1 :])), deep=False)


def gunzip(archive: Path, path: Path) -> None:
    with gzip.open(archive) as packed, atomic_write(path) as part, part.open("wb") as file:
        shutil.copyfileobj(packed, file)
