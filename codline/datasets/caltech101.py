"""Caltech-101: photographs of 101 kinds of things, cut to 224x224 pixels; 915 for testing, 915 for validation, the rest in the pool."""

import logging
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from codline.core.errors import UserError
from codline.core.params import Amount
from codline.data import downloads
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.official import Official, Statistics, understood

# As torchvision's Caltech101.download has them; that class keeps them in no table.
URL = "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip"
MD5 = "3138e1922a9193bfa496528edbbc45d0"
BACKGROUND = "BACKGROUND_Google"  # no class
IMAGES = 8677  # in the official archive, without the background
STATISTICS: dict[str, Statistics] = {
    "imagenet": (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    ),  # as torchvision's weights expect; the paper does not say
    "released": ((0.502,) * 3, (1.0,) * 3),  # main_TOD.py, transforms
}


class Caltech101(Official):
    """There is no official split. The paper's table has 7,316 / 915 / 915 images, which is 80, 10 and 10 per cent of 9,146, background and all; without
    the background there are 8,677, so that 6,847 are in the pool. The released code tests on a tenth of each class, rounded up, and has the other
    7,766 in its pool: `test: 0.1, validation: 0`."""

    name: Literal["caltech101"] = "caltech101"
    test: Amount = 915  # a number of images, or a share of each class
    validation: NonNegativeInt = 915
    statistics: Literal["imagenet", "released"] = "imagenet"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import (
            ImageFolder,
        )  # two seconds to import; its Caltech101 counts files, and guesses their names

        folder = Path(self.root) / "caltech101" / "101_ObjectCategories"
        self.provide(folder.is_dir, lambda: self.bring(folder))
        with understood(folder):
            tree = ImageFolder(str(folder))
        classes = [name for name in tree.classes if name != BACKGROUND]
        samples = [
            (path, classes.index(tree.classes[number]))
            for path, number in tree.samples
            if tree.classes[number] != BACKGROUND
        ]
        if len(samples) != IMAGES:
            logging.warning(
                "%s: found %d images, expected %d; delete it, and it is made anew", folder, len(samples), IMAGES
            )
        labels = np.array([number for _, number in samples], np.int32)
        is_test = self.tested(labels, rng)
        kept = np.sort(np.concatenate([self.drawn(rng.permutation(np.flatnonzero(~is_test))), np.flatnonzero(is_test)]))
        paths = [Path(samples[row][0]) for row in kept]
        images = EncodedImages(len(paths), lambda row: paths[row].read_bytes(), (3, 224, 224))
        return RawDataset(images, labels[kept], is_test[kept], tuple(classes), *STATISTICS[self.statistics])

    def bring(self, folder: Path) -> None:
        with zipfile.ZipFile(self.fetched(folder.parent / "caltech-101.zip", URL, MD5)) as outer:
            inner = next(
                name
                for name in outer.namelist()
                if name.endswith(f"{folder.name}.tar.gz") and not name.startswith("__MACOSX")
            )
            with outer.open(inner) as archive:
                downloads.unpacked(archive, folder)

    def tested(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if isinstance(self.test, float):
            classes = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
            chosen = np.concatenate([rng.permutation(rows)[int((1 - self.test) * len(rows)) :] for rows in classes])
        elif self.test < len(labels):
            chosen = rng.permutation(len(labels))[: self.test]
        else:
            raise UserError(
                f"params.yaml: prepare.dataset.test: found {self.test}, but there are only {len(labels)} images"
            )
        is_test = np.zeros(len(labels), bool)
        is_test[chosen] = True
        return is_test
