"""CIFAR-10: 60,000 photographs of 32x32 pixels; 50,000 for training, 10,000 for testing."""

from typing import Literal

import numpy as np

from codline.data.raw_dataset import RawDataset
from codline.datasets.official import MEASURED, RELEASED_CIFAR, OfficialDataset, load_cifar


class Cifar10(OfficialDataset):
    name: Literal["cifar10"] = "cifar10"
    statistics: Literal["own", "released"] = "own"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import CIFAR10  # takes two seconds to import

        return load_cifar(self, CIFAR10, rng, MEASURED if self.statistics == "own" else RELEASED_CIFAR)
