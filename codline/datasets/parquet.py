"""Images in Parquet files: a column `image` with encoded files or raw bytes, and a column `label` with class numbers or names."""

import io
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.data import tables
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Size, sides


class Parquet(DatasetSpec):
    """The files' schema metadata may hold `classes` (a JSON list of names) and `image_shape` (of raw bytes, rows first, channels last)."""

    name: Literal["parquet"] = "parquet"
    train: list[str] = Field(min_length=1)  # paths; these images are the pool
    test: list[str] = Field(min_length=1)
    pool: PositiveInt | None = None  # so many images of train, drawn at random; all of them if left out

    size: Size | None = (
        None  # cut encoded files of any sizes to this one, when they are stored; left out, all must have one size
    )
    channels: Literal[1, 3] = 3  # of what is cut so

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = ([opened(Path(path)) for path in paths] for paths in (self.train, self.test))
        classes = named(train + test)
        labels = np.concatenate([numbered(path, table, classes) for path, table in train + test])
        many = sum(len(table) for _, table in train)
        if self.pool is not None and self.pool > many:
            raise DataError(f"prepare.dataset.pool: found {self.pool}, but the training files hold only {many} images")
        kept = np.sort(rng.choice(many, self.pool, replace=False)) if self.pool else np.arange(many)
        rows = np.concatenate([kept, np.arange(many, len(labels))])
        images = stacked(train + test)[rows] if self.size is None else self.files(train + test, rows, sides(self.size))
        return RawDataset(images, labels[rows], np.arange(len(rows)) >= len(kept), classes)

    def files(self, parts: list[tuple[Path, pa.Table]], rows: np.ndarray, size: tuple[int, int]) -> EncodedImages:
        starts = np.cumsum([0, *(len(table) for _, table in parts)])

        def place(row: int) -> tuple[int, int]:
            part = int(np.searchsorted(starts, rows[row], side="right")) - 1
            return part, int(rows[row] - starts[part])

        def read(row: int) -> bytes:
            part, there = place(row)
            cell: bytes = parts[part][1]["image"][there].as_py()
            return cell

        return EncodedImages(
            len(rows), read, (self.channels, *size), lambda row: f"{parts[place(row)[0]][0]}: row {place(row)[1]}"
        )


def stacked(parts: list[tuple[Path, pa.Table]]) -> np.ndarray:
    images = [decoded(path, table) for path, table in parts]
    shapes = {image.shape[1:]: path for image, (path, _) in zip(images, parts, strict=True)}
    if len(shapes) > 1:
        raise DataError(
            f"images of several sizes: {', '.join(f'{shape} in {path}' for shape, path in shapes.items())}; set prepare.dataset.size"
        )
    return np.concatenate(images)


def opened(path: Path) -> tuple[Path, pa.Table]:
    return path, tables.foreign(path, "image", "label")


def hint(table: pa.Table, key: str) -> Any:
    value = (table.schema.metadata or {}).get(key.encode())
    return json.loads(value) if value else None


def named(parts: list[tuple[Path, pa.Table]]) -> tuple[str, ...]:
    """The classes: as the files list them, or the names, or the numbers up to the largest."""
    listed = next((names for _, table in parts if (names := hint(table, "classes"))), None)
    if listed is not None:
        return tuple(listed)
    labels = {label for _, table in parts for label in table["label"].unique().to_pylist()}
    if all(isinstance(label, int) for label in labels):
        return tuple(str(number) for number in range(max(labels) + 1))
    return tuple(sorted(str(label) for label in labels))


def numbered(path: Path, table: pa.Table, classes: tuple[str, ...]) -> np.ndarray:
    labels = table["label"].to_pylist()
    numbers = {name: number for number, name in enumerate(classes)}
    found = [label if isinstance(label, int) else numbers.get(str(label), -1) for label in labels]
    for row, number in enumerate(found):
        if not 0 <= number < len(classes):
            raise DataError(
                f"{path}: row {row}: found the label {labels[row]!r}, expected one of {len(classes)} classes"
            )
    return np.array(found, np.int32)


def decoded(path: Path, table: pa.Table) -> np.ndarray:
    """(N, channels, height, width). Greyscale files stay so; all others become RGB."""
    cells, shape = table["image"].to_pylist(), hint(table, "image_shape")
    if shape and len(cells[0]) == np.prod(shape):
        height, width, *channels = shape
        images = np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), height, width, *(channels or [1]))
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    first, decodings = None, []
    for row, cell in enumerate(cells):
        image = pixels(path, row, cell)
        first = image.shape if first is None else first
        if image.shape != first:
            raise DataError(
                f"{path}: row {row}: found an image of {image.shape}, expected {first} as in the rows before it; set prepare.dataset.size"
            )
        decodings.append(image)
    return np.stack(decodings)


def pixels(path: Path, row: int, cell: bytes) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(cell)) as image:
            array = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path}: row {row}: not an image that can be read ({error})") from error
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
