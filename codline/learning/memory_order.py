"""Arrays as bytes that keep the order of their axes in memory; pickles and files of numpy arrays have all in C order.

numpy adds numbers up in the order in which they are in memory, so the last bits of scores depend on it.
"""

from collections.abc import Callable

import numpy as np


def in_memory_order(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A contiguous array with the axes in their order in memory, and what np.transpose needs to restore the array."""
    order = np.argsort([-stride for stride in array.strides], kind="stable")
    return np.ascontiguousarray(array.transpose(order)), np.argsort(order)


class PickledArray:
    """An array whose axes come back in the same order in memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.axes = in_memory_order(array)

    def __reduce__(self) -> tuple[Callable[..., np.ndarray], tuple[np.ndarray, np.ndarray]]:
        return np.transpose, (self.array, self.axes)
