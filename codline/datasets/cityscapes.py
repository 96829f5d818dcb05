"""Cityscapes: 2048x1024 frames of 50 cities, 19 classes; 2,975 for training, 500 for testing.

The test images are the official validation images: the labels of the official test images are not public.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Literal
from zipfile import BadZipFile

import numpy as np

from codline.core.errors import DataError
from codline.core.files import user_path
from codline.data import masks
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.base import DatasetSpec, Task, UserPath, open_image

ARCHIVES = ("leftImg8bit_trainvaltest.zip", "gtFine_trainvaltest.zip")
COUNTS = {"train": 2975, "val": 500}
MEAN, STD = (0.290101, 0.328081, 0.286964), (0.182954, 0.186566, 0.184475)  # from fyu/drn, the network's own code


class Cityscapes(DatasetSpec):
    name: Literal["cityscapes"] = "cityscapes"
    task: ClassVar[Task] = "segmentation"
    root: UserPath  # directory with the folders leftImg8bit and gtFine, or with the two archives

    def load(self, rng: np.random.Generator) -> RawDataset:  # noqa: ARG002 (nothing to draw: the split is official)
        train, test = (image_and_mask_files(user_path(self.root), split) for split in ("train", "val"))
        files = train + test
        class_of_id, classes = read_class_table()
        size = image_size(files[0][0])
        with ThreadPoolExecutor() as threads:  # Pillow releases the GIL
            labels = list(threads.map(lambda pair: encode_label(pair[0], pair[1], size, class_of_id), files))
        images = EncodedImages(len(files), lambda row: files[row][0].read_bytes(), (3, size[1], size[0]))
        return RawDataset(images, labels, np.arange(len(files)) >= len(train), classes, MEAN, STD)


def image_and_mask_files(root: Path, split: str) -> list[tuple[Path, Path]]:
    """Sorted by name. torchvision knows the layout and unpacks the archives."""
    from torchvision.datasets import Cityscapes as TorchvisionCityscapes  # takes two seconds to import

    try:
        files = TorchvisionCityscapes(str(root), split=split, mode="fine", target_type="semantic")
    except (RuntimeError, OSError, BadZipFile) as error:
        raise DataError(
            f"{root}: no Cityscapes in it ({' '.join(str(error).split())}); "
            f"register at www.cityscapes-dataset.com, get {' and '.join(ARCHIVES)}, and put both there"
        ) from error
    count = len(files.images)
    if not count:
        raise DataError(f"{root}/leftImg8bit/{split}: found no images, expected a folder for each city")
    if count != COUNTS[split]:
        logging.getLogger("codline").warning(
            "%s/leftImg8bit/%s: found %d images, expected %d", root, split, count, COUNTS[split]
        )
    return sorted((Path(image), Path(target[0])) for image, target in zip(files.images, files.targets, strict=True))


def read_class_table() -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each id in the mask files (255 for ids that are not trained on), and the names of the classes."""
    from torchvision.datasets import Cityscapes as TorchvisionCityscapes

    trained = [kind for kind in TorchvisionCityscapes.classes if 0 <= kind.train_id < 255]
    class_of_id = np.full(256, 255, np.uint8)
    class_of_id[[kind.id for kind in trained]] = [kind.train_id for kind in trained]
    return class_of_id, tuple(kind.name for kind in sorted(trained, key=lambda kind: kind.train_id))


def encode_label(image: Path, target: Path, size: tuple[int, int], class_of_id: np.ndarray) -> bytes:
    """The mask as codline stores it. Image and mask must have the given (width, height)."""
    try:
        with open_image(target, str(target)) as picture:
            mask = np.asarray(picture)
    except FileNotFoundError as error:
        raise DataError(f"{target}: not found, though its image is there") from error
    for path, found in {image: image_size(image), target: (mask.shape[1], mask.shape[0])}.items():
        if found != size:
            raise DataError(
                f"{path}: found {found[0]}x{found[1]} pixels, expected {size[0]}x{size[1]} as of the first image"
            )
    return masks.encode_mask(class_of_id[mask])


def image_size(path: Path) -> tuple[int, int]:
    with open_image(path, str(path)) as image:
        return image.size
