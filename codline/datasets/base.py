"""What every dataset is: images, labels, classes, and which images are kept for testing."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator

from codline.images import counts, moments
from codline.params import Section

SMALLEST = 8  # pixels a side

Task = Literal["classification", "segmentation"]  # a class per image, or per pixel


@dataclass(frozen=True)
class Encoded:
    """Images as files, read one at a time, so that memory does not grow with their number."""

    count: int
    read: Callable[[int], bytes]  # row -> a file in any format that Pillow knows
    shape: tuple[int, int, int]  # channels, height, width of every image, once it is decoded and cut to size
    name: Callable[[int], str] = "row {}".format  # row -> what a sentence calls the file


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
    def cells(self) -> np.ndarray:
        """The labels as tables keep them."""
        return self.labels if isinstance(self.labels, np.ndarray) else np.array(self.labels, object)

    @property
    def known(self) -> np.ndarray:
        """Which images have a label."""
        return self.labels >= 0 if isinstance(self.labels, np.ndarray) else np.ones(len(self.labels), bool)

    def statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel."""
        if self.mean:
            return list(self.mean), list(self.std)
        return moments(counts(self.images, ~self.is_test))


def one_or_two_sides(value: Any) -> Any:
    sides = value if isinstance(value, list) and len(value) == 2 else [value]
    if not all(isinstance(side, int) and not isinstance(side, bool) and side >= SMALLEST for side in sides):
        raise ValueError(f"the pixels of a side, at least {SMALLEST}, or [height, width]")
    return value


Size = Annotated[int | list[int], BeforeValidator(one_or_two_sides)]


def sides(size: int | list[int]) -> tuple[int, int]:
    height, width = size if isinstance(size, list) else (size, size)
    return height, width


class DatasetSpec(Section):
    task: ClassVar[Task] = "classification"

    @abstractmethod
    def load(self, rng: np.random.Generator) -> Raw:
        """`rng` draws the test split where the dataset has no official one."""


def duplicates(pool: Iterable[bytes], test: Collection[bytes]) -> int:
    """How many test images are in the pool too, by the hashes of both. Only those of the test images are held, for these are few."""
    known = set(test)
    twice = {image for image in pool if image in known}
    return sum(image in twice for image in test)
