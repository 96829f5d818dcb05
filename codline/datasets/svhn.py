"""SVHN, house numbers of 32x32 pixels: 65,931 in the pool, 7,326 for validation, 26,032 for testing; without the 531,131 extra ones."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from codline.data.raw_dataset import RawDataset
from codline.datasets.official import MEASURED, Official, Statistics, understood

RELEASED: Statistics = ((0.4310, 0.4302, 0.4463), (0.1965, 0.1984, 0.1992))  # main_TOD.py, transforms


class Svhn(Official):
    name: Literal["svhn"] = "svhn"
    validation: NonNegativeInt = (
        7326  # supplementary, table of datasets; the released code has none, and 73,257 in its pool
    )
    statistics: Literal["own", "released"] = "own"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import SVHN  # two seconds to import
        from torchvision.datasets.utils import check_integrity

        folder = Path(self.root) / "svhn"  # torchvision has no folder of its own for it
        files = [SVHN.split_list[split] for split in ("train", "test")]
        self.provide(
            lambda: all(check_integrity(folder / name, md5) for _, name, md5 in files),
            lambda: [self.fetched(folder / name, url, md5) for url, name, md5 in files],
        )
        with understood(folder):
            train, test = (SVHN(folder, split=split) for split in ("train", "test"))
        return self.split(
            [(part.data, part.labels) for part in (train, test)],
            list("0123456789"),
            rng,
            MEASURED if self.statistics == "own" else RELEASED,
        )
