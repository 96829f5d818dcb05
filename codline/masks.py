"""The labels of segmentation: a mask per image, kept as a PNG with a class number per pixel, 255 where there is none."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, UnidentifiedImageError

from codline.dense import thinned
from codline.errors import DataError


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


def kept_targets(labels: np.ndarray) -> np.ndarray:
    """The same for the outputs that are kept."""
    return decoded_thin(labels.tolist()) if labels.dtype == object else labels


def one(cell: bytes) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(cell)) as image:
            mask = np.asarray(image)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"a mask cannot be read ({error}); expected a PNG with a class number per pixel") from error
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError(f"a mask has {mask.shape[2] if mask.ndim == 3 else 1} channels of {mask.dtype}, expected one of 8 bits")
    return mask
