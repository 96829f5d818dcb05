"""Parquet files with a column `image` (encoded files or raw bytes) and a column `label` (class numbers or names)."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.data import tables
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, ImageSize, height_and_width, open_image

File = tuple[Path, pa.Table]


class Parquet(DatasetSpec):
    """Optional schema metadata: `classes` (JSON list of names), `image_shape` (height, width, channels of raw bytes)"""

    name: Literal["parquet"] = "parquet"
    train: list[str] = Field(min_length=1)  # paths of the files with the pool
    test: list[str] = Field(min_length=1)
    pool: PositiveInt | None = None  # number of training images, drawn at random; default: all
    # Encoded images are cropped to this size when they are stored; without it, all must have the same size.
    size: ImageSize | None = None
    channels: Literal[1, 3] = 3  # of cropped images

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = (
            [(Path(path), tables.read_foreign_table(Path(path), "image", "label")) for path in paths]
            for paths in (self.train, self.test)
        )
        files = train + test
        classes = class_names(files)
        labels = np.concatenate([class_numbers(file, classes) for file in files])
        train_count = sum(len(table) for _, table in train)
        if self.pool is not None and self.pool > train_count:
            raise DataError(
                f"prepare.dataset.pool: found {self.pool}, but the training files hold only {train_count} images"
            )
        pool = np.sort(rng.choice(train_count, self.pool, replace=False)) if self.pool else np.arange(train_count)
        rows = np.concatenate([pool, np.arange(train_count, len(labels))])
        images = decode_files(files)[rows] if self.size is None else self.encoded_images(files, rows, self.size)
        return RawDataset(images, labels[rows], np.arange(len(rows)) >= len(pool), classes)

    def encoded_images(self, files: list[File], rows: np.ndarray, size: int | list[int]) -> EncodedImages:
        starts = np.cumsum([0, *(len(table) for _, table in files)])

        def locate(row: int) -> tuple[Path, pa.Table, int]:
            index = int(np.searchsorted(starts, rows[row], side="right")) - 1
            return *files[index], int(rows[row] - starts[index])

        def read(row: int) -> bytes:
            _, table, row_in_file = locate(row)
            content: bytes = table["image"][row_in_file].as_py()
            return content

        def name(row: int) -> str:
            path, _, row_in_file = locate(row)
            return f"{path}: row {row_in_file}"

        return EncodedImages(len(rows), read, (self.channels, *height_and_width(size)), name)


def metadata_value(table: pa.Table, key: str) -> Any:
    value = (table.schema.metadata or {}).get(key.encode())
    return json.loads(value) if value else None


def class_names(files: list[File]) -> tuple[str, ...]:
    """From the metadata of the first file that has them; else the sorted names, or the numbers up to the largest."""
    listed = next((names for _, table in files if (names := metadata_value(table, "classes"))), None)
    if listed is not None:
        return tuple(listed)
    labels = {label for _, table in files for label in table["label"].unique().to_pylist()}
    if all(isinstance(label, int) for label in labels):
        return tuple(str(number) for number in range(max(labels) + 1))
    return tuple(sorted(str(label) for label in labels))


def class_numbers(file: File, classes: tuple[str, ...]) -> np.ndarray:
    path, table = file
    labels = table["label"].to_pylist()
    number_of = {name: number for number, name in enumerate(classes)}
    numbers = [label if isinstance(label, int) else number_of.get(str(label), -1) for label in labels]
    for row, number in enumerate(numbers):
        if not 0 <= number < len(classes):
            raise DataError(
                f"{path}: row {row}: found the label {labels[row]!r}, expected one of {len(classes)} classes"
            )
    return np.array(numbers, np.int32)


def decode_files(files: list[File]) -> np.ndarray:
    images = [decode_table(path, table) for path, table in files]
    shapes = {image.shape[1:]: path for image, (path, _) in zip(images, files, strict=True)}
    if len(shapes) > 1:
        found = ", ".join(f"{shape} in {path}" for shape, path in shapes.items())
        raise DataError(f"images of several sizes: {found}; set prepare.dataset.size")
    return np.concatenate(images)


def decode_table(path: Path, table: pa.Table) -> np.ndarray:
    """uint8 (N, channels, height, width). Grayscale files have one channel, all others are converted to RGB."""
    cells, shape = table["image"].to_pylist(), metadata_value(table, "image_shape")
    if shape and len(cells[0]) == np.prod(shape):
        height, width, *channels = shape
        images = np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), height, width, *(channels or [1]))
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    decoded: list[np.ndarray] = []
    for row, cell in enumerate(cells):
        image = decode_cell(cell, f"{path}: row {row}")
        if decoded and image.shape != decoded[0].shape:
            raise DataError(
                f"{path}: row {row}: found an image of {image.shape}, expected {decoded[0].shape} "
                "as in the rows before it; set prepare.dataset.size"
            )
        decoded.append(image)
    return np.stack(decoded)


def decode_cell(cell: bytes, name: str) -> np.ndarray:
    with open_image(cell, name) as image:
        pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
