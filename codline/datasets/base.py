"""What every dataset is: images, labels, classes, and which images are kept for testing."""

from abc import abstractmethod
from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator

from codline.core.params import Section
from codline.data.raw_dataset import RawDataset

SMALLEST = 8  # pixels a side

Task = Literal["classification", "segmentation"]  # a class per image, or per pixel


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
    def load(self, rng: np.random.Generator) -> RawDataset:
        """`rng` draws the test split where the dataset has no official one."""


def duplicates(pool: Iterable[bytes], test: Collection[bytes]) -> int:
    """How many test images are in the pool too, by the hashes of both. Only those of the test images are held, for these are few."""
    known = set(test)
    twice = {image for image in pool if image in known}
    return sum(image in twice for image in test)
