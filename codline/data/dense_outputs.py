"""Dense model outputs (a value per pixel): which pixels are stored, and their reduction to one value per image.

Shapes: (N, C) for classification, (N, C, H, W) for segmentation.
"""

from typing import Any

import numpy as np

IGNORE_INDEX = 255  # in a mask: pixels without a class, excluded from losses and metrics
STRIDE = 8  # of stored pixels, in both directions: neighbours are alike, and all pixels would take 64 times the space


def subsample_pixels(values: Any) -> Any:
    """Every eighth pixel in both directions of an array or tensor (..., H, W)."""
    return values[..., STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE]


def stored_output_shape(classes: int, size: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the stored outputs of one image; `size` is its height and width, or empty for classification."""
    return (classes, *(len(range(STRIDE // 2, side, STRIDE)) for side in size))


def mean_per_image(values: np.ndarray) -> np.ndarray:
    """(N,) as is; (N, H, W) averaged over pixels."""
    return values if values.ndim == 1 else values.reshape(len(values), -1).mean(axis=1)
