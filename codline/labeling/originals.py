"""The original files of images: in the user's folder or Parquet files; else the image as it is stored."""

import hashlib
import io
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from codline.core.errors import DataError
from codline.core.files import file_sha256
from codline.data.decoding import THREADS, open_image
from codline.data.image_names import ImageNames
from codline.data.image_store import EncodedImageStore, open_image_store
from codline.runtime.pipeline import Pipeline

SUFFIXES = {"JPEG": ".jpg", "TIFF": ".tif"}  # of other formats, the format's name
MAX_STEM = 200  # bytes
PARQUET_ROWS = 1024  # cells in memory at once


@dataclass(frozen=True)
class Original:
    name: str  # relative, with the suffix of its format
    content: Path | bytes  # the user's file, or its bytes

    def write(self, directory: Path, name: str, copy: bool = False) -> None:
        """Link to the user's file, or write a copy, under a name in `directory`."""
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        elif copy:
            shutil.copyfile(self.content, path)
        else:
            path.symlink_to(self.content.absolute())


def find_originals(pipeline: Pipeline, ids: np.ndarray) -> dict[int, Original]:
    """By id. Files that have changed since their image was read are another image, and are not used."""
    names = ImageNames(pipeline.path("prepare", "files")).names_of(ids)
    dataset: dict[str, Any] = pipeline.params["prepare"]["dataset"]
    found: dict[int, Original] = {}
    if dataset["name"] == "folder":
        found = files_in_folder(pipeline.root / Path(dataset["path"]).expanduser(), names)
    elif dataset["name"] == "parquet":
        paths = [pipeline.root / Path(path).expanduser() for path in (*dataset["train"], *dataset["test"])]
        found = dict(parquet_cells([path for path in paths if path.exists()], names))
    missing = np.array([i for i in ids.tolist() if i not in found], np.int64)
    return found | dict(stored_images(pipeline.path("prepare", "images"), missing, names))


def files_in_folder(root: Path, names: dict[int, list[str]]) -> dict[int, Original]:
    candidates = [(i, name) for i, listed in names.items() for name in listed]

    def is_original(candidate: tuple[int, str]) -> bool:
        path = root / candidate[1]
        return path.is_file() and content_id(file_sha256(path)) == candidate[0]

    with ThreadPoolExecutor(THREADS) as threads:
        checked = list(threads.map(is_original, candidates))
    found: dict[int, Original] = {}
    for (i, name), is_unchanged in zip(candidates, checked, strict=True):
        if is_unchanged:
            found.setdefault(i, Original(name, root / name))
    return found


def content_id(sha256: str) -> int:
    """The id of a file with this hexadecimal hash: its first 63 bits."""
    return int(sha256[:16], 16) >> 1


def parquet_cells(paths: Iterable[Path], names: dict[int, list[str]]) -> Iterator[tuple[int, Original]]:
    """Reads and hashes all cells, a gigabyte in about two seconds."""
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(PARQUET_ROWS, columns=["image"]):
            for cell in batch["image"]:
                i = content_id(hashlib.sha256(cell.as_buffer()).hexdigest())
                if i in names and (suffix := image_suffix(cell.as_py())):
                    yield i, Original(with_suffix(names[i][0], suffix), cell.as_py())


def stored_images(store: Path, ids: np.ndarray, names: dict[int, list[str]]) -> Iterator[tuple[int, Original]]:
    images = open_image_store(store)
    for i in ids.tolist():
        name = names.get(i, [str(i)])[0]
        content = images.file(i) if isinstance(images, EncodedImageStore) else encode_png(images.take(np.array([i]))[0])
        yield i, Original(with_suffix(name, image_suffix(content)), content)


def encode_png(image_CHW: np.ndarray) -> bytes:
    pixels = np.ascontiguousarray(image_CHW[0] if len(image_CHW) == 1 else image_CHW.transpose(1, 2, 0))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def image_suffix(content: bytes) -> str:
    """Of the format; empty if it is none, as raw pixels are."""
    try:
        kind = open_image(content).format or ""
    except (DataError, OSError):
        return ""
    return SUFFIXES.get(kind, f".{kind.lower()}")


def with_suffix(name: str, suffix: str) -> str:
    """The name as a relative path that ends with the suffix."""
    path = PurePosixPath(*(part for part in PurePosixPath(name).parts if part not in ("/", "..")))
    is_named_so = path.suffix.lower() == suffix or (suffix, path.suffix.lower()) == (".jpg", ".jpeg")
    return str(path) if is_named_so else f"{path}{suffix}"


def distinct_name(name: str, image_id: int, taken: set[str]) -> str:
    """The name, or, if another image has it, the name with the id, which is cut to what file systems allow."""
    path = PurePosixPath(name)
    stem = path.stem.encode()[:MAX_STEM].decode(errors="ignore")
    result = name if name not in taken else str(path.with_name(f"{stem}-{image_id}{path.suffix}"))
    taken.add(result)
    return result
