"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels, which come with the library: nothing is downloaded."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.data.draws import draw, draw_key
from codline.data.raw_dataset import RawDataset
from codline.datasets.base import DatasetSpec


class Digits(DatasetSpec):
    name: Literal["digits"] = "digits"
    test: float = Field(default=0.2, gt=0, lt=1)

    def load(self, rng: np.random.Generator) -> RawDataset:
        from sklearn.datasets import load_digits  # takes a second to import

        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]  # stored as 0..16
        labels = digits.target.astype(np.int32)
        is_test = draw(self.test, np.arange(len(labels)), labels, draw_key(rng), by_content=False)
        return RawDataset(images, labels, is_test, tuple("0123456789"), mean=(0.3053,), std=(0.3760,))
