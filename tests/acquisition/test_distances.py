"""Distances and selections by them, against plain implementations, scipy and scikit-learn."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from codline.acquisition import distances
from codline.acquisition.distances import Points, k_means_plus_plus
from codline.acquisition.features import k_means
from codline.acquisition.k_center import k_center
from tests.acquisition.rows import make_rows, row_kinds


@given(st.integers(0, 99), st.integers(1, 600), row_kinds)
def test_squared_distances_are_exact_for_every_choice_of_rows(seed: int, width: int, kind: str) -> None:
    points = Points.from_rows(make_rows(seed, 12, width, kind))
    integers = [[int(value) for value in row] for row in points.factors[0]]
    expected = [[sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in integers] for a in integers]
    assert points.squared_distances(slice(0, 12), slice(0, 12)).tolist() == expected
    assert [points.squared_distances([row], np.arange(12))[0].tolist() for row in range(12)] == expected


def test_squared_distances_of_the_largest_rows_are_exact() -> None:
    points = Points.from_rows(np.array([[1.0] * 512, [-1.0] * 512, [1 - 2.0**-20] + [1.0] * 511], np.float32))
    expected = [4 * 512 / points.unit**2, (2.0**-20 / points.unit) ** 2]
    assert points.squared_distances([0], [1, 2])[0].tolist() == expected


@given(st.integers(0, 99), st.integers(2, 10), st.integers(1, 30))
def test_squared_distances_of_factors_are_those_of_outer_products(seed: int, classes: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    a, h = rng.uniform(-1, 1, (9, classes)), rng.normal(size=(9, width)).astype(np.float32)
    points = Points.from_rows(a, h)
    outer = np.einsum("nc,nd->ncd", a, h).reshape(9, -1)
    squared = points.squared_distances(slice(0, 9), slice(0, 9))
    assert squared * points.unit**2 == pytest.approx(cdist(outer, outer, "sqeuclidean"), abs=1e-4)
    assert not squared.diagonal().any()


def test_draw_row_follows_the_weights() -> None:
    rng, weights = np.random.default_rng(0), np.array([0, 1.0, 0, 3.0, 0])
    counts = np.bincount([distances.draw_row(weights, rng) for _ in range(4000)], minlength=5)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    assert stats.chisquare(counts[[1, 3]], [1000, 3000]).pvalue > 0.01


SPREAD = np.array([[0, 0], [0, 1], [1, 0], [5, 5], [5, 6], [9, 0]], np.float32)


def draw_three(seed: int) -> np.ndarray:
    return k_means_plus_plus(Points.from_rows(SPREAD), np.ones(6), 3, np.random.default_rng(seed))


def have_the_same_distribution(draw: Callable[[int], np.ndarray], other: Callable[[int], np.ndarray]) -> bool:
    """Chi-squared test on how often each ordered triple of rows is drawn in 1500 trials."""
    codes = np.array([[np.dot(each(seed), [36, 6, 1]) for seed in range(1500)] for each in (draw, other)])
    counts = np.stack([np.bincount(row, minlength=216) for row in codes])
    return bool(stats.chi2_contingency(counts[:, counts.sum(axis=0) >= 20]).pvalue > 0.01)


def test_k_means_plus_plus_is_distributed_like_that_of_scikit_learn() -> None:
    doubles = SPREAD.astype(np.float64)
    assert have_the_same_distribution(
        draw_three, lambda seed: kmeans_plusplus(doubles, 3, random_state=seed, n_local_trials=1)[1]
    )


def test_k_means_plus_plus_has_the_same_distribution_if_all_distances_are_updated_after_each_pick() -> None:
    def draw_eagerly(seed: int) -> np.ndarray:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distances, "MAX_PENDING", 1)
            return draw_three(10_000 + seed)

    assert have_the_same_distribution(draw_three, draw_eagerly)


def test_k_means_plus_plus_follows_weights_and_squared_distances_to_the_centers() -> None:
    points = Points.from_rows(np.array([[0.0], [1.0], [2.0], [0.0]], np.float32))  # the last one is a center
    weights = np.array([9.0, 4.0, 1.0])
    draws = [k_means_plus_plus(points, weights, 1, np.random.default_rng(seed), [3])[0] for seed in range(2000)]
    counts = np.bincount(draws, minlength=3)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], [1000, 1000]).pvalue > 0.01


@given(st.integers(0, 99), st.integers(1, 30), row_kinds)
def test_k_means_plus_plus_picks_distinct_rows_up_to_all_of_them(seed: int, rows: int, kind: str) -> None:
    points = Points.from_rows(make_rows(seed, rows, 3, kind))
    assert sorted(k_means_plus_plus(points, np.ones(rows), rows, np.random.default_rng(seed))) == list(range(rows))


@given(st.integers(0, 99), row_kinds)
def test_nearest_distances_are_the_smallest_of_all_pairs(seed: int, kind: str) -> None:
    points, rows, others = Points.from_rows(make_rows(seed, 30, 4, kind)), np.arange(10, 20), np.arange(3, 25)
    squared = points.squared_distances(rows, others)
    squared[np.arange(10), rows - 3] = np.inf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "MAX_CELLS", 100)
        nearest = distances.nearest_distances(points, rows, others, 5)
    assert nearest.tolist() == np.sort(squared, axis=1)[:, :5].tolist()


@settings(deadline=None)
@given(
    seed=st.integers(0, 99),
    candidates=st.integers(1, 25),
    labeled=st.integers(0, 5),
    radius=st.floats(0.1, 4),
    kind=row_kinds,
    chunk_rows=st.integers(1, 30),
)
def test_greedy_cover_picks_like_one_with_an_explicit_neighbor_graph(
    seed: int, candidates: int, labeled: int, radius: float, kind: str, chunk_rows: int
) -> None:
    points = Points.from_rows(make_rows(seed, candidates + labeled, 2, kind))
    squared = points.squared_distances(slice(0, len(points)), slice(0, candidates))
    is_neighbor = squared < (radius / points.unit) ** 2
    covered, picks = is_neighbor[candidates:].any(axis=0), list[int]()
    while len(picks) < candidates and (is_neighbor[:candidates] & ~covered).any():
        picks.append(int((is_neighbor[:candidates] & ~covered).sum(axis=1).argmax()))
        covered |= is_neighbor[picks[-1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "CHUNK_ROWS", chunk_rows)
        patch.setattr(distances, "TILE", 1 << 20)  # four rows at a time
        cover = distances.greedy_cover(points, candidates, candidates, radius, np.random.default_rng(0))
    assert cover[: len(picks)].tolist() == picks
    assert sorted(cover) == list(range(candidates))


@pytest.mark.parametrize("algorithm", ["k_center", "k_means_plus_plus", "cover", "nearest", "other_clusters"])
def test_distances_are_never_held_for_all_pairs(algorithm: str) -> None:
    points, rng = Points.from_rows(make_rows(0, 8000, 4)), np.random.default_rng(0)
    everything = np.arange(8000)
    algorithms = {
        "k_center": lambda: k_center(points, 5000, 100),
        "k_means_plus_plus": lambda: k_means_plus_plus(points, np.ones(5000), 100, rng, range(5000, 8000)),
        "cover": lambda: distances.greedy_cover(points, 5000, 100, 0.5, rng),
        "nearest": lambda: distances.nearest_distances(points, everything, everything, 20),
        "other_clusters": lambda: distances.distances_to_other_clusters(points, everything, everything % 2),
    }
    tracemalloc.start()
    algorithms[algorithm]()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8000 * 8000 * 8 / 3


def test_k_means_repeats_with_the_same_seed() -> None:
    rows = make_rows(0, 500, 8)
    first, second, other = (k_means(rows, 60, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
