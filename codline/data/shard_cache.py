"""Shards of images from the DVC remote, copied once to each machine that has no share of the campaign's files.

DVC keeps a file under its MD5. `pyarrow.fs` reads directories and S3; its endpoint and credentials come from the
environment variables, files and services that other AWS clients read (AWS_ENDPOINT_URL, AWS_PROFILE, ...).
"""

import hashlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from codline.core.errors import DataError, InfrastructureError, StorageError, UserError
from codline.core.files import atomic_write, user_path
from codline.core.locks import file_lock
from codline.data.image_manifest import ShardRecord

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

REMOTE = "CODLINE_DATA_REMOTE"
S3 = "s3://"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # which pyarrow does not read
READ_BYTES = 2**23  # each a request to S3


def fetch_shard(remote: str, shard: ShardRecord, campaign_path: Path) -> Path:
    """The shard in the cache of this machine, to which one process copies it if it is not there.

    A copy gets its name once its SHA-256 is right. `campaign_path` is where the campaign has it, for sentences.
    """
    cached = cache_directory() / f"{shard.sha256}.arrow"
    if not cached.exists():
        with file_lock(cached.with_suffix(".lock"), wait=math.inf):
            if not cached.exists():
                copy_shard(remote, shard, campaign_path, cached)
    return cached


def cache_directory() -> Path:
    """Only its owner can read it: images may be private."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or user_path("~/.cache")) / "codline" / "images"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        reason = f"cannot be created: {error.strerror}"
        raise StorageError(f"{directory}: {reason}; XDG_CACHE_HOME says where images are copied to") from error
    return directory


def copy_shard(remote: str, shard: ShardRecord, campaign_path: Path, cached: Path) -> None:
    digest = hashlib.sha256()
    with atomic_write(cached) as part:
        with part.open("wb") as file:
            for data in read_object(remote, shard.md5, campaign_path):
                file.write(data)
                digest.update(data)
        if digest.hexdigest() != shard.sha256:
            found = f"{campaign_path}: its object in {remote}, {object_name(shard.md5)}, is damaged: found SHA-256"
            cure = f"remove it there and run `dvc push {campaign_path.parent}`"
            raise DataError(f"{found} {digest.hexdigest()}, expected {shard.sha256}; {cure}")


def read_object(remote: str, md5: str, campaign_path: Path) -> Iterator[bytes]:
    path = f"{path_in_remote(remote)}/{object_name(md5)}"
    try:
        with open_file_system(remote).open_input_stream(path) as stream:
            while data := stream.read(READ_BYTES):
                yield data
    except FileNotFoundError as error:
        found = f"{campaign_path}: not in {remote}, expected the object {object_name(md5)} there"
        raise DataError(f"{found}; run `dvc push {campaign_path.parent}` where the images were prepared") from error
    except OSError as error:
        reason = " ".join(str(error).split())
        raise InfrastructureError(f"{campaign_path}: cannot be read from {remote} ({reason})") from error


def object_name(md5: str) -> str:
    """Where DVC 3 keeps a file in a remote."""
    return f"files/md5/{md5[:2]}/{md5[2:]}"


def path_in_remote(remote: str) -> str:
    """Of the remote's root: its bucket and prefix, or its directory."""
    if remote.startswith(S3) and remote != S3:
        return remote.removeprefix(S3).rstrip("/")
    path = user_path(remote)
    if "://" in remote or not path.is_absolute():
        raise UserError(f"{REMOTE}: found {remote!r}, expected s3://BUCKET/PATH or an absolute path")
    return str(path)


def open_file_system(remote: str) -> "FileSystem":
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    if not remote.startswith(S3):
        return LocalFileSystem()
    endpoint = urlsplit(next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), ""))
    settings = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme} if endpoint.netloc else {}
    return S3FileSystem(**settings)
