"""What every dataset is: images, labels, classes, and which images are kept for testing."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codline.params import Section


@dataclass(frozen=True)
class Raw:
    """Everything of a dataset; row i has id i."""

    images: np.ndarray  # uint8, (N, channels, height, width)
    labels: np.ndarray  # int32, (N,)
    is_test: np.ndarray  # bool, (N,)


class DatasetSpec(Section):
    classes: ClassVar[tuple[str, ...]]
    mean: ClassVar[tuple[float, ...]]  # of pixels scaled to [0, 1], per channel
    std: ClassVar[tuple[float, ...]]

    @abstractmethod
    def load(self, rng: np.random.Generator) -> Raw:
        """`rng` draws the test split where the dataset has no official one."""
