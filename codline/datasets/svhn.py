"""SVHN: house numbers of 32x32 pixels; 73,257 for training, 26,032 for testing; no extra ones."""

from typing import Literal

import numpy as np

from codline.core.files import user_path
from codline.data.raw_dataset import RawDataset
from codline.datasets.official import MEASURED, OfficialDataset, Statistics, translate_torchvision_errors

RELEASED: Statistics = ((0.4310, 0.4302, 0.4463), (0.1965, 0.1984, 0.1992))  # main_TOD.py, transforms


class Svhn(OfficialDataset):
    name: Literal["svhn"] = "svhn"
    statistics: Literal["own", "released"] = "own"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import SVHN  # takes two seconds to import
        from torchvision.datasets.utils import check_integrity

        folder = user_path(self.root) / "svhn"  # torchvision would put the files directly into root
        files = [SVHN.split_list[split] for split in ("train", "test")]
        self.ensure_files(
            lambda: all(check_integrity(folder / name, md5) for _, name, md5 in files),
            lambda: [self.fetch(folder / name, url, md5) for url, name, md5 in files],
        )
        with translate_torchvision_errors(folder):
            splits = (SVHN(folder, split=split) for split in ("train", "test"))
            train, test = ((split.data, split.labels) for split in splits)
        statistics = MEASURED if self.statistics == "own" else RELEASED
        return self.assemble(train, test, list("0123456789"), rng, statistics)
