"""Segmentation labels: a mask per image, stored as a PNG whose pixels are class numbers, or 255 (IGNORE_INDEX)."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from codline.core.errors import DataError
from codline.data.decoding import open_image
from codline.data.dense_outputs import IGNORE_INDEX, subsample_pixels

MASK_CACHE_BYTES = 2**30


def encode_mask(mask_HW: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(mask_HW).save(buffer, "PNG")
    return buffer.getvalue()


def decode_mask(cell: bytes, classes: int = IGNORE_INDEX) -> np.ndarray:
    """uint8 (height, width), of class numbers below `classes`, or IGNORE_INDEX"""
    try:
        with open_image(cell, ("PNG",)) as image:
            mask = np.asarray(image)
    except (DataError, OSError) as error:
        raise DataError(f"a mask cannot be read ({error}); expected a PNG with a class number per pixel") from error
    if mask.ndim != 2 or mask.dtype != np.uint8:
        channels = mask.shape[2] if mask.ndim == 3 else 1
        raise DataError(f"a mask has {channels} channels of {mask.dtype}, expected one of 8 bits")
    if classes < IGNORE_INDEX and (outside := mask[(mask >= classes) & (mask != IGNORE_INDEX)]).size:
        raise DataError(f"a mask has class {outside[0]}, expected 0 to {classes - 1}, or {IGNORE_INDEX} for no class")
    return mask


def decode_masks(cells: Sequence[bytes], classes: int = IGNORE_INDEX) -> np.ndarray:
    """uint8 (N, height, width)"""
    return np.stack([decode_mask(cell, classes) for cell in cells])


def decode_subsampled_masks(cells: Sequence[bytes], classes: int = IGNORE_INDEX) -> np.ndarray:
    """Masks at the pixels whose outputs are stored; only one full mask is in memory at a time."""
    return np.stack([np.ascontiguousarray(subsample_pixels(decode_mask(cell, classes))) for cell in cells])


def decode_targets(labels: np.ndarray, classes: int) -> np.ndarray:
    """The targets of a loss or metric: class numbers as they are, masks decoded."""
    return decode_masks(labels.tolist(), classes) if labels.dtype == object else labels


def decode_subsampled_targets(labels: np.ndarray, classes: int) -> np.ndarray:
    """Targets for stored outputs: as decode_targets, at the pixels that are stored."""
    return decode_subsampled_masks(labels.tolist(), classes) if labels.dtype == object else labels


class CachedTargets:
    """Targets by row, for repeated passes: the first masks that are used stay decoded, up to `cache` bytes."""

    def __init__(self, labels: np.ndarray, classes: int = IGNORE_INDEX, cache: int = MASK_CACHE_BYTES) -> None:
        self.labels, self.classes, self.free_bytes = labels, classes, cache
        self.masks: dict[int, np.ndarray] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.mask(row) for row in rows.tolist()]) if self.labels.dtype == object else self.labels[rows]

    def mask(self, row: int) -> np.ndarray:
        if row in self.masks:
            return self.masks[row]
        mask = decode_mask(self.labels[row], self.classes)
        if mask.nbytes <= self.free_bytes:
            self.masks[row] = mask
            self.free_bytes -= mask.nbytes
        return mask
