"""What a dataset plug-in returns: images, labels, classes and the test split, before they are stored."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codline.data.image_store import counts, moments


@dataclass(frozen=True)
class EncodedImages:
    """Images as files, read one at a time, so that memory does not grow with their number."""

    count: int
    read: Callable[[int], bytes]  # row -> a file in any format that Pillow knows
    shape: tuple[int, int, int]  # channels, height, width of every image, once it is decoded and cut to size
    name: Callable[[int], str] = "row {}".format  # row -> what a sentence calls the file


@dataclass(frozen=True)
class RawDataset:
    """Everything of a dataset; row i has id i."""

    images: np.ndarray | EncodedImages  # uint8, (N, channels, height, width), or files
    labels: (
        np.ndarray | list[bytes]
    )  # int32, (N,); of segmentation, a PNG per image with a class number per pixel, 255 where there is none
    is_test: np.ndarray  # bool, (N,)
    classes: tuple[str, ...]
    mean: tuple[
        float, ...
    ] = ()  # of pixels scaled to [0, 1], per channel; left empty, they are measured on what is not for testing
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
