"""manifest.json of the image store: its shards, each with the ids that it holds and its hashes."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from codline.core.errors import DataError
from codline.core.files import read_json, write_json

MANIFEST = "manifest.json"
READ_BYTES = 2**20


class ShardRecord(BaseModel):
    """One file of the store, with ascending ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^\d{5,}\.arrow$")]
    rows: int
    first_id: int
    last_id: int
    size: int  # bytes
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # its name in DVC's cache and remotes
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # by which a copy is verified


class ImageManifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, int, int]  # channels, height, width of an image
    encoding: Literal["pixels", "files"]  # raw pixels, or image files, which are decoded when they are read
    resize: tuple[int, int] | None  # height and width to which files are scaled before they are cropped
    shards: Annotated[tuple[ShardRecord, ...], Field(min_length=1)]  # with ascending ids


def write_manifest(directory: Path, manifest: ImageManifest) -> None:
    write_json(directory / MANIFEST, manifest.model_dump())


def read_manifest(directory: Path) -> ImageManifest:
    path = directory / MANIFEST
    try:
        return ImageManifest.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: not what prepare writes: {place}: {first['msg']}; run prepare again") from error


def describe_shard(path: Path, rows: int, first_id: int, last_id: int) -> ShardRecord:
    """Reads the file once, for both hashes."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            md5.update(data)
            sha256.update(data)
            size += len(data)
    return ShardRecord(
        name=path.name, rows=rows, first_id=first_id, last_id=last_id, size=size,
        md5=md5.hexdigest(), sha256=sha256.hexdigest(),
    )  # fmt: skip
