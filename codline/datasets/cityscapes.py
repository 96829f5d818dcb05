"""Cityscapes: 2048x1024 frames from 50 cities, 19 classes; 2,675 in the pool, 300 set aside, the 500 official ones of validation for testing."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal
from zipfile import BadZipFile

import numpy as np
from PIL import Image, UnidentifiedImageError
from pydantic import NonNegativeInt

from codline.core.errors import DataError, UserError
from codline.data import masks
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Task

ARCHIVES = ("leftImg8bit_trainvaltest.zip", "gtFine_trainvaltest.zip")
COUNTS = {"train": 2975, "val": 500}
# As fyu/drn, whose network it is, has them.
MEAN, STD = (0.290101, 0.328081, 0.286964), (0.182954, 0.186566, 0.184475)


class Cityscapes(DatasetSpec):
    name: Literal["cityscapes"] = "cityscapes"
    task: ClassVar[Task] = "segmentation"
    root: str  # holds the folders leftImg8bit and gtFine, or the two archives
    validation: NonNegativeInt = 300  # training images that are drawn and left out: neither in the pool nor for testing

    def load(self, rng: np.random.Generator) -> RawDataset:
        train, test = (pairs(Path(self.root), split) for split in ("train", "val"))
        if self.validation >= len(train):
            raise UserError(
                f"params.yaml: prepare.dataset.validation: found {self.validation}, but there are only {len(train)} training images"
            )
        kept = [train[row] for row in np.sort(rng.permutation(len(train))[self.validation :])]
        chosen = kept + test
        numbers, classes = mapping()
        size = size_of(chosen[0][0])
        with ThreadPoolExecutor() as threads:  # Pillow lets other threads work
            labels = list(threads.map(lambda pair: label(pair[0], pair[1], size, numbers), chosen))
        images = EncodedImages(len(chosen), lambda row: chosen[row][0].read_bytes(), (3, size[1], size[0]))
        return RawDataset(images, labels, np.arange(len(chosen)) >= len(kept), classes, MEAN, STD)


def pairs(root: Path, split: str) -> list[tuple[Path, Path]]:
    """Images and their masks, in the order of their names."""
    from torchvision.datasets import (
        Cityscapes as Official,
    )  # two seconds to import; it knows the layout, and unpacks the archives

    try:
        found = Official(str(root), split=split, mode="fine", target_type="semantic")
    except (RuntimeError, OSError, BadZipFile) as error:
        raise DataError(
            f"{root}: no Cityscapes in it ({' '.join(str(error).split())}); "
            f"register at www.cityscapes-dataset.com, get {' and '.join(ARCHIVES)}, and put both there"
        ) from error
    if not found.images:
        raise DataError(f"{root}/leftImg8bit/{split}: found no images, expected a folder for each city")
    if len(found.images) != COUNTS[split]:
        logging.warning(
            "%s/leftImg8bit/%s: found %d images, expected %d", root, split, len(found.images), COUNTS[split]
        )
    return sorted((Path(image), Path(target[0])) for image, target in zip(found.images, found.targets, strict=True))


def mapping() -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each of the files' numbers, 255 for those that nobody trains on; the classes' names."""
    from torchvision.datasets import Cityscapes as Official

    trained = sorted((kind for kind in Official.classes if 0 <= kind.train_id < 255), key=lambda kind: kind.train_id)
    numbers = np.full(256, 255, np.uint8)
    for kind in trained:
        numbers[kind.id] = kind.train_id
    return numbers, tuple(kind.name for kind in trained)


def label(image: Path, target: Path, size: tuple[int, int], numbers: np.ndarray) -> bytes:
    with readable(target) as picture:
        mask = np.asarray(picture)
    for path, found in {image: size_of(image), target: (mask.shape[1], mask.shape[0])}.items():
        if found != size:
            raise DataError(
                f"{path}: found {found[0]}x{found[1]} pixels, expected {size[0]}x{size[1]} as of the first image"
            )
    return masks.encoded(numbers[mask])


def size_of(path: Path) -> tuple[int, int]:
    with readable(path) as image:
        return image.size


@contextmanager
def readable(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found, though its image is there") from error
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path}: not an image that can be read ({error})") from error
