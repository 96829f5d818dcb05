"""Base class of datasets, which load images, labels, class names and the test split."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from PIL import Image
from pydantic import BeforeValidator

from codline.core.errors import DataError
from codline.core.files import user_path
from codline.core.params import Section
from codline.data import decoding
from codline.data.folder_walk import NOT_PLAIN
from codline.data.raw_dataset import RawDataset

MIN_SIDE, MAX_SIDE = 8, 8192  # pixels

Task = Literal["classification", "segmentation"]  # one class per image, or per pixel


def validate_size(value: Any) -> Any:
    sides = value if isinstance(value, list) and len(value) == 2 else [value]
    if not all(isinstance(side, int) and not isinstance(side, bool) and MIN_SIDE <= side <= MAX_SIDE for side in sides):
        raise ValueError(f"the pixels of a side, {MIN_SIDE} to {MAX_SIDE}, or [height, width]")
    return value


def validate_path(value: Any) -> Any:
    if isinstance(value, str) and (not value.strip() or NOT_PLAIN.search(value)):
        raise ValueError("a path")
    return value


ImageSize = Annotated[int | list[int], BeforeValidator(validate_size)]
UserPath = Annotated[str, BeforeValidator(validate_path)]


def height_and_width(size: int | list[int]) -> tuple[int, int]:
    height, width = size if isinstance(size, list) else (size, size)
    return height, width


class DatasetSpec(Section):
    task: ClassVar[Task] = "classification"

    @abstractmethod
    def load(self, rng: np.random.Generator) -> RawDataset:
        """`rng` draws the test split if the dataset has no official one, and the subset of a smaller pool."""

    def input_paths(self) -> dict[str, str]:
        """{name: path} of the user's files and folders that the dataset is read from; DVC watches them.

        Names consist of a-z, 0-9 and -. None for downloaded datasets, whose files are verified by checksum.
        """
        return {}


def numbered_paths(name: str, paths: list[str]) -> dict[str, str]:
    """Inputs: train-1, train-2 and so on."""
    return {f"{name}-{number}": str(user_path(path)) for number, path in enumerate(paths, 1)}


@contextmanager
def open_image(source: Path | bytes, name: str) -> Iterator[Image.Image]:
    """Opens an image; an unreadable one raises a DataError that starts with `name`, a missing one FileNotFoundError."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    try:
        with decoding.translate_pillow_errors(), decoding.open_image(content) as image:
            yield image
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
