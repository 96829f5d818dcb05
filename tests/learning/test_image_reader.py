"""What a pass with worker processes shares with one in a single process: batches, and arrays as they are in memory."""

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.learning.image_reader import CHUNK_BATCHES
from codline.learning.inference import batch_slices
from codline.learning.memory_order import PickledArray


@given(st.integers(0, 500), st.integers(2, 20))
def test_batches_of_the_chunks_are_those_of_the_whole_pass(count: int, size: int) -> None:
    ids = np.arange(count)
    chunks = [ids[rows] for rows in batch_slices(count, CHUNK_BATCHES * size)]
    of_chunks = [chunk[rows].tolist() for chunk in chunks for rows in batch_slices(len(chunk), size)]
    assert of_chunks == [ids[rows].tolist() for rows in batch_slices(count, size)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)])
def test_pickled_array_comes_back_with_its_axes_in_the_same_order_in_memory(order: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).random((4, 5, 6, 7), np.float32).transpose(order)
    for view in (array, array[:, :, ::2, ::3], array[:2]):
        copy = pickle.loads(pickle.dumps(PickledArray(view)))
        assert np.array_equal(copy, view)
        assert np.argsort(copy.strides).tolist() == np.argsort(view.strides).tolist()
        assert copy.sum(axis=(2, 3)).tobytes() == view.copy(order="K").sum(axis=(2, 3)).tobytes()
