"""What every dataset is: images, labels, classes, and which images are kept for testing."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codline.params import Section


@dataclass(frozen=True)
class Encoded:
    """Images as files, read one at a time, so that memory does not grow with their number."""

    count: int
    read: Callable[[int], bytes]  # row -> a file in any format that Pillow knows
    shape: tuple[int, int, int]  # channels, height, width of every image, once it is decoded and cut to size


@dataclass(frozen=True)
class Raw:
    """Everything of a dataset; row i has id i."""

    images: np.ndarray | Encoded  # uint8, (N, channels, height, width), or files
    labels: np.ndarray | list[bytes]  # int32, (N,); of segmentation, a PNG per image with a class number per pixel, 255 where there is none
    is_test: np.ndarray  # bool, (N,)
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()  # of pixels scaled to [0, 1], per channel; left empty, they are measured on what is not for testing
    std: tuple[float, ...] = ()

    @property
    def task(self) -> Literal["classification", "segmentation"]:
        return "classification" if isinstance(self.labels, np.ndarray) else "segmentation"

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel. From counts of the 256 values, so exact in any order."""
        if self.mean:
            return list(self.mean), list(self.std)
        values, moments = np.arange(256) / 255, []
        for channel in range(self.images.shape[1]):
            counts = np.bincount(self.images[~self.is_test, channel].reshape(-1), minlength=256)
            mean = float(counts @ values / counts.sum())
            moments.append((round(mean, 6), round(float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum())), 6)))
        return [mean for mean, _ in moments], [std for _, std in moments]


class DatasetSpec(Section):
    @abstractmethod
    def load(self, rng: np.random.Generator) -> Raw:
        """`rng` draws the test split where the dataset has no official one."""
