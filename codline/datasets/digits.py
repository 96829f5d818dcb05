"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels, which come with the library: nothing is downloaded."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec, random_test_split


class Digits(DatasetSpec):
    name: Literal["digits"] = "digits"
    test: float = Field(default=0.2, gt=0, lt=1)

    def load(self, rng: np.random.Generator) -> RawDataset:
        from sklearn.datasets import load_digits  # takes a second to import

        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]  # stored as 0..16
        labels, is_test = digits.target.astype(np.int32), random_test_split(len(images), self.test, rng)
        return RawDataset(images, labels, is_test, tuple("0123456789"), mean=(0.3053,), std=(0.3760,))
