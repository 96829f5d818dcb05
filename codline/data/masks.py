"""The labels of segmentation: a mask per image, kept as a PNG with a class number per pixel, 255 where there is none."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, UnidentifiedImageError

from codline.core.errors import DataError
from codline.data.dense_outputs import thinned

CACHE = 2**30  # bytes of decoded masks kept by those who ask for them again and again


def encoded(mask_HW: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(mask_HW).save(buffer, "PNG")
    return buffer.getvalue()


def decoded(cells: Sequence[bytes]) -> np.ndarray:
    """(N, height, width)"""
    return np.stack([one(cell) for cell in cells])


def decoded_thin(cells: Sequence[bytes]) -> np.ndarray:
    """The pixels whose outputs are kept; never more than one whole mask in memory."""
    return np.stack([np.ascontiguousarray(thinned(one(cell))) for cell in cells])


def targets(labels: np.ndarray) -> np.ndarray:
    """What a network's outputs are compared with: class numbers as they are, masks decoded."""
    return decoded(labels.tolist()) if labels.dtype == object else labels


class Targets:
    """The same, row by row, over and over: the first masks asked for stay decoded, up to `cache` bytes."""

    def __init__(self, labels: np.ndarray, cache: int = CACHE) -> None:
        self.labels, self.room = labels, cache
        self.masks: dict[int, np.ndarray] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.mask(row) for row in rows.tolist()]) if self.labels.dtype == object else self.labels[rows]

    def mask(self, row: int) -> np.ndarray:
        if row in self.masks:
            return self.masks[row]
        mask = one(self.labels[row])
        if mask.nbytes <= self.room:
            self.masks[row] = mask
            self.room -= mask.nbytes
        return mask


def kept_targets(labels: np.ndarray) -> np.ndarray:
    """The same for the outputs that are kept."""
    return decoded_thin(labels.tolist()) if labels.dtype == object else labels


def one(cell: bytes) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(cell), formats=("PNG",)) as image:
            mask = np.asarray(image)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"a mask cannot be read ({error}); expected a PNG with a class number per pixel") from error
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError(
            f"a mask has {mask.shape[2] if mask.ndim == 3 else 1} channels of {mask.dtype}, expected one of 8 bits"
        )
    return mask
