"""CIFAR-10: 60,000 photographs of 32x32 pixels; 45,000 in the pool, 5,000 for validation, 10,000 for testing."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from codline.data.raw_dataset import RawDataset
from codline.datasets.official import MEASURED, RELEASED_CIFAR, Official, cifar


class Cifar10(Official):
    name: Literal["cifar10"] = "cifar10"
    validation: NonNegativeInt = (
        5000  # supplementary, table of datasets; the released code has none, and 50,000 in its pool
    )
    statistics: Literal["own", "released"] = "own"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import CIFAR10  # two seconds to import

        return cifar(self, CIFAR10, rng, MEASURED if self.statistics == "own" else RELEASED_CIFAR)
