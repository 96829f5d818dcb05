"""Parquet files with a column `image` (encoded files or raw bytes) and a column `label` (class numbers or names)."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.core.files import user_path
from codline.core.params_errors import format_value
from codline.data import tables
from codline.data.draws import draw_key
from codline.data.folder_walk import NOT_PLAIN
from codline.data.identity import DIGEST, Conflicts, find_distinct_images
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, ImageSize, UserPath, height_and_width, numbered_paths, open_image

File = tuple[Path, pa.Table]
MAX_NAME = 240  # bytes of a file name, of 255 that file systems allow
MAX_CLASSES = 100_000  # a number beyond it is no class, but an id or an error


class Parquet(DatasetSpec):
    """Optional schema metadata: `classes` (JSON list of names), `image_shape` (height, width, channels of raw bytes)

    An image's id is the hash of its cell. Its name is in the column `file`, if there is one, else `train.parquet#12`.
    """

    name: Literal["parquet"] = "parquet"
    train: list[UserPath] = Field(min_length=1)  # paths of the files with the pool
    test: list[UserPath] = Field(min_length=1)
    # Number of training images that are used, drawn by class; validation images are taken from them. Default: all.
    pool: PositiveInt | None = None
    # Encoded images are cropped to this size when they are stored; without it, all must have the same size.
    size: ImageSize | None = None
    channels: Literal[1, 3] = 3  # of cropped images
    conflicts: Conflicts = "refuse"  # identical images with different labels

    def load(self, rng: np.random.Generator) -> RawDataset:
        files = [(path, read_images(path)) for path in map(user_path, (*self.train, *self.test))]
        classes = class_names(files)
        labels = np.concatenate([class_numbers(file, classes) for file in files])
        is_test = np.repeat(np.arange(len(files)) >= len(self.train), [len(table) for _, table in files])
        if (unlabeled := np.flatnonzero(is_test & (labels < 0))).size:
            raise DataError(
                f"{', '.join(self.test)}: {len(unlabeled)} test images have no label, expected one for each"
            )
        names, digests = image_names(files), np.concatenate([cell_digests(table) for _, table in files])
        where = " and ".join([self.train[0], self.test[0]])
        distinct = find_distinct_images(where, names, digests, labels, is_test, classes.__getitem__, self.conflicts)
        distinct = distinct.with_pool(self.pool, draw_key(rng))
        rows = distinct.rows
        images = decode_files(files)[rows] if self.size is None else self.encoded_images(files, rows, self.size)
        ids = {"content_ids": distinct.ids, "files": distinct.files}
        return RawDataset(images, distinct.labels, distinct.is_test, classes, **ids)

    def input_paths(self) -> dict[str, str]:
        return numbered_paths("train", self.train) | numbered_paths("test", self.test)

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


def metadata_list(file: File, key: str, kind: type) -> list[Any] | None:
    """A list in the metadata of the schema, written as JSON."""
    path, table = file
    if (text := (table.schema.metadata or {}).get(key.encode())) is None:
        return None
    try:
        values = json.loads(text)
    except ValueError:
        values = text
    if not isinstance(values, list) or not values or not all(type(value) is kind for value in values):
        expected = "class names" if kind is str else "height, width and channels"
        raise DataError(f"{path}: metadata {key}: found {format_value(values)}, expected a JSON list of {expected}")
    return values


def read_images(path: Path) -> pa.Table:
    table = tables.read_foreign_table(path, "image", "label", optional=("file",))
    kind = table["image"].type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        raise DataError(f"{path}: found images of type {kind}, expected bytes")
    if nulls := table["image"].null_count:
        raise DataError(f"{path}: {nulls} rows have no image, expected one in each")
    return table


def cell_digests(table: pa.Table) -> np.ndarray:
    return np.array([hashlib.sha256(cell.as_buffer()).digest() for cell in table["image"]], DIGEST)


def image_names(files: list[File]) -> list[str]:
    """Names by which people know the images, with the whole path where two Parquet files have the same name."""
    file_names = [path.name for path, _ in files]
    names: list[str] = []
    for path, table in files:
        prefix = path.name if file_names.count(path.name) == 1 else str(path)
        given = table["file"].to_pylist() if "file" in table.column_names else [None] * len(table)
        names += [f"{prefix}#{row}" if name is None else checked_name(path, name) for row, name in enumerate(given)]
    return names


def checked_name(path: Path, name: Any) -> str:
    """Images are exported under their names."""
    if (
        not isinstance(name, str)
        or NOT_PLAIN.search(name)
        or max(len(part.encode()) for part in name.split("/")) > MAX_NAME
    ):
        expected = f"names of at most {MAX_NAME} bytes without control characters"
        raise DataError(f"{path}: column file: found {format_value(name)}, expected {expected}")
    return name


def class_names(files: list[File]) -> tuple[str, ...]:
    """From the metadata of the first file that has them; else the sorted names, or the numbers up to the largest."""
    numbered = {path: is_numbered(path, table["label"].type) for path, table in files}
    if len(set(numbered.values())) > 1:
        kinds = (next(path for path in numbered if numbered[path] == kind) for kind in (True, False))
        raise DataError("found class numbers as labels in {} and class names in {}, expected one kind".format(*kinds))
    listed = next((names for file in files if (names := metadata_list(file, "classes", str))), None)
    if listed is not None:
        return tuple(listed)
    labels = {label for _, table in files for label in table["label"].unique().to_pylist()} - {None}
    if not labels:
        raise DataError(f"{files[0][0]}: no image has a label")
    if not any(numbered.values()):
        return tuple(sorted(labels))
    if max(labels) >= MAX_CLASSES:
        found = f"{files[0][0]}: found the label {max(labels)}"
        raise DataError(f"{found}, expected class numbers below {MAX_CLASSES}, or class names")
    return tuple(str(number) for number in range(max(labels) + 1))


def is_numbered(path: Path, kind: pa.DataType) -> bool:
    """Whether labels are class numbers, rather than names."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{path}: found labels of type {kind}, expected whole numbers or texts")
    return bool(pa.types.is_integer(kind))


def class_numbers(file: File, classes: tuple[str, ...]) -> np.ndarray:
    """int32 (N,), -1 where there is no label."""
    path, table = file
    column = table["label"]
    if is_numbered(path, column.type):
        numbers = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    else:
        numbers = pc.fill_null(pc.index_in(column.cast(pa.string()), pa.array(classes)), -1).to_numpy()
    outside = column.is_valid().to_numpy() & ((numbers < 0) | (numbers >= len(classes)))
    if (rows := np.flatnonzero(outside)).size:
        found = f"{path}: row {rows[0]}: found the label {column[int(rows[0])].as_py()!r}"
        raise DataError(f"{found}, expected one of {len(classes)} classes")
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
    cells, shape = table["image"].to_pylist(), metadata_list((path, table), "image_shape", int)
    if shape and len(shape) in (2, 3) and min(shape) > 0 and len(cells[0]) == math.prod(shape):
        if wrong := [row for row, cell in enumerate(cells) if len(cell) != math.prod(shape)]:
            found = f"{path}: row {wrong[0]}: found {len(cells[wrong[0]])} bytes"
            raise DataError(f"{found}, expected {math.prod(shape)} for an image of {shape}")
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
