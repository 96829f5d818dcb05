"""Greedy k-center with lazy float32 bounds against a plain implementation in integers."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.spatial.distance import cdist

from codline.acquisition import k_center as module
from codline.acquisition.distances import Points
from codline.acquisition.k_center import DistanceBounds, k_center
from tests.acquisition.rows import make_rows, row_kinds


def plain_k_center(rows: np.ndarray, candidates: int, count: int) -> list[int]:
    """Compute every distance to every center, one pick after the other."""
    rows, picks = rows.astype(np.int64), list[int]()
    distances = np.full(candidates, np.iinfo(np.int64).max)
    for center in range(candidates, len(rows)):
        distances = np.minimum(distances, ((rows[:candidates] - rows[center]) ** 2).sum(axis=1))
    for _ in range(count):
        picks.append(max((i for i in range(candidates) if i not in picks), key=lambda i: (distances[i], -i)))
        distances = np.minimum(distances, ((rows[:candidates] - rows[picks[-1]]) ** 2).sum(axis=1))
    return picks


def assert_picks_are_those_of_plain_k_center(rows: np.ndarray, candidates: int, count: int) -> None:
    points = Points.from_rows(rows)
    assert k_center(points, candidates, count).tolist() == plain_k_center(points.factors[0], candidates, count)


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    candidates=st.integers(1, 60),
    labeled=st.integers(0, 20),
    width=st.integers(1, 40),
    kind=row_kinds,
    sizes=st.tuples(*[st.integers(1, 9)] * 3, st.integers(16, 40)),
    data=st.data(),
)
def test_k_center_picks_like_the_plain_one_for_all_chunk_sizes(
    seed: int,
    candidates: int,
    labeled: int,
    width: int,
    kind: str,
    sizes: tuple[int, int, int, int],
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(1, candidates))
    constants = ("CHUNK_ROWS", "FIRST_CENTERS", "MAX_UPDATED_ROWS", "SMALL_CELLS")
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(constants, sizes, strict=True):
            patch.setattr(module, name, size)
        assert_picks_are_those_of_plain_k_center(make_rows(seed, candidates + labeled, width, kind), candidates, count)


def test_k_center_picks_like_the_plain_one_over_several_chunks() -> None:
    rows = make_rows(0, 3 * module.CHUNK_ROWS + 50, 64)
    assert_picks_are_those_of_plain_k_center(rows, len(rows) - 40, 60)


def test_k_center_picks_like_the_plain_one_where_float32_cannot_separate_rows() -> None:
    """Far from zero, float32 products round away the differences that distances consist of."""
    assert_picks_are_those_of_plain_k_center(1 + make_rows(3, 400, 64) / 10_000, 380, 80)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1.0, 1e20, 1e38])
def test_k_center_picks_do_not_depend_on_the_scale_of_the_features(scale: float) -> None:
    rows = make_rows(2, 90, 16).astype(np.float64)
    rows /= np.abs(rows).max()
    expected = k_center(Points.from_rows(rows), 80, 30).tolist()
    assert k_center(Points.from_rows((rows * scale).astype(np.float32)), 80, 30).tolist() == expected


def test_k_center_picks_are_not_changed_by_rounding_to_integers() -> None:
    rows = make_rows(1, 400, 32).astype(np.float64)
    distances, picks = cdist(rows, rows), list[int]()
    nearest = distances[:, 380:].min(axis=1)[:380]
    for _ in range(50):
        picks.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances[:380, picks[-1]])
    assert k_center(Points.from_rows(rows.astype(np.float32)), 380, 50).tolist() == picks


def test_k_center_computes_few_exact_distances_and_half_of_all_approximate_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact, approximate = list[int](), list[int]()
    make_exact, products = DistanceBounds.make_exact, module.float32_products

    def counting_make_exact(bounds: DistanceBounds, rows: np.ndarray) -> None:
        exact.append(len(rows))
        make_exact(bounds, rows)

    def counting_products(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        approximate.append(len(rows) * len(others))
        return products(rows, others)

    monkeypatch.setattr(DistanceBounds, "make_exact", counting_make_exact)
    monkeypatch.setattr(module, "float32_products", counting_products)
    k_center(Points.from_rows(make_rows(4, 6000, 64)), 4900, 100)
    assert sum(exact) < 200
    assert sum(approximate) < 0.5 * 4900 * (1100 + 100)
