"""TopRows keeps what sorting everything would keep."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.scoring.top_rows import TopRows

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=60)  # few values, so that many are equal


def add_in_batches(rows: TopRows, scores: list[float], sizes: list[int]) -> None:
    start = 0
    while start < len(scores):
        stop = start + sizes[start % len(sizes)]
        ids = np.arange(start, min(stop, len(scores)))
        rows.add(np.array(scores[start:stop]), {"ids": ids, "squares": np.stack([ids, ids**2], axis=1)})
        start = stop


@given(SCORES, st.integers(1, 70), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_top_rows_are_those_of_a_stable_sort_for_any_batches(scores: list[float], count: int, sizes: list[int]) -> None:
    rows = TopRows(count, len(scores))
    add_in_batches(rows, scores, sizes)
    columns = rows.finish()
    expected = sorted(sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:count])
    assert columns["ids"].tolist() == expected
    assert columns["squares"].tolist() == [[row, row**2] for row in expected]


def test_top_rows_hold_a_quarter_more_than_they_keep() -> None:
    rows = TopRows(100, 10_000)
    add_in_batches(rows, list(range(10_000)), [64])
    assert {len(values) for values in rows.columns.values()} == {126}
    assert rows.finish()["ids"].tolist() == list(range(9_900, 10_000))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)])
def test_top_rows_keep_the_order_of_axes_in_memory(order: tuple[int, ...]) -> None:
    batch = np.zeros((4, 3, 5, 2)).transpose(np.argsort(order))
    rows = TopRows(8, 8)
    for _ in range(2):
        rows.add(np.zeros(4), {"outputs": batch})
    expected = np.concatenate([batch, batch])
    assert rows.finish()["outputs"].strides == expected.strides
