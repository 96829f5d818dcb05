"""What a dataset plug-in returns: images, labels, classes and the test split, before they are stored."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from codline.data.pixel_statistics import mean_and_std, pixel_counts


@dataclass(frozen=True)
class EncodedImages:
    """Image files, read one at a time to bound memory."""

    count: int
    read: Callable[[int], bytes]  # row -> content of the file, in any format that Pillow reads
    shape: tuple[int, int, int]  # channels, height, width of every image once it is decoded and cropped
    name: Callable[[int], str] = "row {}".format  # row -> name of the file in error sentences
    resize: tuple[int, int] | None = None  # height and width to scale to before the crop (see decode_image)


@dataclass(frozen=True)
class RawDataset:
    """A whole dataset of N images. The image in row i has id i, unless ids come from the images' content."""

    images: np.ndarray | EncodedImages  # uint8 (N, channels, height, width), or files
    # int32 (N,), negative where there is no label; for segmentation a list of masks (see codline.data.masks).
    labels: np.ndarray | list[bytes]
    is_test: np.ndarray  # bool (N,)
    classes: tuple[str, ...]
    # Per channel, of pixels scaled to [0, 1]; if empty, they are computed from the images outside the test split.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    content_ids: np.ndarray | None = None  # int64 (N,), ascending (see codline.data.identity)
    files: pa.Table | None = None  # tables.FILES: the names of the images, sorted by id

    @property
    def ids(self) -> np.ndarray:
        """int64 (N,), ascending"""
        return np.arange(len(self.is_test)) if self.content_ids is None else self.content_ids

    @property
    def strata(self) -> np.ndarray:
        """int32 (N,): the classes by which images are drawn, of which segmentation has one."""
        return self.labels if isinstance(self.labels, np.ndarray) else np.zeros(len(self.labels), np.int32)

    @property
    def label_cells(self) -> np.ndarray:
        """The labels as values of a table column."""
        return self.labels if isinstance(self.labels, np.ndarray) else np.array(self.labels, object)

    @property
    def has_label(self) -> np.ndarray:
        """bool (N,)"""
        return self.labels >= 0 if isinstance(self.labels, np.ndarray) else np.ones(len(self.labels), bool)

    def channel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel."""
        if self.mean:
            return list(self.mean), list(self.std)
        return mean_and_std(pixel_counts(self.images, ~self.is_test))
