"""CIFAR-100: 60,000 photographs of 32x32 pixels, 100 fine classes; 45,000 in the pool, 5,000 for validation, 10,000 for testing."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from codline.data.raw_dataset import RawDataset
from codline.datasets.official import MEASURED, RELEASED_CIFAR, Official, cifar


class Cifar100(Official):
    name: Literal["cifar100"] = "cifar100"
    validation: NonNegativeInt = (
        5000  # supplementary, table of datasets; the released code has none, and 50,000 in its pool
    )
    statistics: Literal["own", "released"] = "own"  # the released code normalises with its numbers for CIFAR-10

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import CIFAR100  # two seconds to import

        return cifar(self, CIFAR100, rng, MEASURED if self.statistics == "own" else RELEASED_CIFAR)
