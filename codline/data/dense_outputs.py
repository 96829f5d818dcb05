"""Outputs with a value per pixel: which of them are kept, and how an image's become one. Works on arrays and tensors alike. Shapes: (N, C) or (N, C, H, W)."""

from typing import Any

import numpy as np

NOTHING = 255  # in a mask: no class, and not counted
STRIDE = 8  # of the pixels kept, in both directions: neighbours say much the same, and all of them would be 64 times as much to keep


def thinned(values: Any) -> Any:
    """Every eighth pixel of the last two axes."""
    return values[..., STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE]


def kept(classes: int, size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the outputs kept of one image of this height and width; without a size, of one that has one label."""
    return (classes, *(len(range(STRIDE // 2, side, STRIDE)) for side in size))


def per_image(values: np.ndarray) -> np.ndarray:
    """Of values per pixel, their mean: it does not grow with the image."""
    return values if values.ndim == 1 else values.reshape(len(values), -1).mean(axis=1)
