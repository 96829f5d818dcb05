"""Caltech-101: photographs of 224x224 pixels; 8,677, of which 915 are for testing by default."""

import logging
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np

from codline.core.errors import UserError
from codline.core.files import user_path
from codline.core.params import Amount
from codline.data import downloads
from codline.data.draws import draw_count, draw_key
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.official import OfficialDataset, Statistics, translate_torchvision_errors

# From torchvision's Caltech101.download, which does not expose them.
URL = "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip"
MD5 = "3138e1922a9193bfa496528edbbc45d0"
BACKGROUND = "BACKGROUND_Google"  # not a class
SHAPE, RESIZE = (3, 224, 224), (256, 256)  # scaled to RESIZE, then cropped, as in paper and released code
IMAGES = 8677  # in the official archive, without the background
STATISTICS: dict[str, Statistics] = {
    # The paper does not say; these are the ones for torchvision's weights.
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "released": ((0.502,) * 3, (1.0,) * 3),  # main_TOD.py, transforms
}


class Caltech101(OfficialDataset):
    """There is no official split.

    The paper has 7,316 / 915 / 915 images, 80, 10 and 10 per cent of 9,146 including the background. Without the
    background there are 8,677, hence 6,847 in the pool. The released code tests on a tenth of each class, rounded up,
    and has the other 7,766 in its pool: `test: 0.1`, and `prepare.validation: 0`.
    """

    name: Literal["caltech101"] = "caltech101"
    test: Amount = 915  # number of images, by class in proportion, or share of each class
    statistics: Literal["imagenet", "released"] = "imagenet"

    def load(self, rng: np.random.Generator) -> RawDataset:
        # Takes two seconds to import. torchvision's Caltech101 derives file names from counts instead of listing them.
        from torchvision.datasets import ImageFolder

        folder = user_path(self.root) / "caltech101" / "101_ObjectCategories"
        self.ensure_files(folder.is_dir, lambda: self.download_to(folder))
        with translate_torchvision_errors(folder):
            tree = ImageFolder(str(folder))
        classes = [name for name in tree.classes if name != BACKGROUND]
        samples = [(Path(path), tree.classes[i]) for path, i in tree.samples if tree.classes[i] != BACKGROUND]
        if len(samples) != IMAGES:
            logging.getLogger("codline").warning(
                "%s: found %d images, expected %d; delete it, and it is made anew", folder, len(samples), IMAGES
            )
        labels = np.array([classes.index(name) for _, name in samples], np.int32)
        is_test = self.draw_test_split(labels, rng)
        pool = self.draw_pool(np.flatnonzero(~is_test), labels[~is_test], rng)
        rows = np.sort(np.concatenate([pool, np.flatnonzero(is_test)]))
        images = EncodedImages(len(rows), lambda row: samples[rows[row]][0].read_bytes(), SHAPE, resize=RESIZE)
        return RawDataset(images, labels[rows], is_test[rows], tuple(classes), *STATISTICS[self.statistics])

    def download_to(self, folder: Path) -> None:
        with zipfile.ZipFile(self.fetch(folder.parent / "caltech-101.zip", URL, MD5)) as outer:
            names = (name for name in outer.namelist() if not name.startswith("__MACOSX"))
            with outer.open(next(name for name in names if name.endswith(f"{folder.name}.tar.gz"))) as archive:
                downloads.extract_directory(archive, folder)

    def draw_test_split(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if isinstance(self.test, float):
            rows_by_class = [np.flatnonzero(labels == i) for i in range(labels.max() + 1)]
            parts = [rng.permutation(rows)[int((1 - self.test) * len(rows)) :] for rows in rows_by_class]
            test_rows = np.concatenate(parts)
        elif self.test < len(labels):
            return draw_count(self.test, np.arange(len(labels)), labels, draw_key(rng))
        else:
            raise UserError(
                f"params.yaml: prepare.dataset.test: found {self.test}, but there are only {len(labels)} images"
            )
        is_test = np.zeros(len(labels), bool)
        is_test[test_rows] = True
        return is_test
