"""Distances between rows: the lazy and the factored forms against the plain ones."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from codline.acquisition import distances, k_center as centers
from codline.acquisition.distances import Points
from codline.acquisition.k_center import k_center


def rows_of(seed: int, rows: int, width: int, kind: str) -> np.ndarray:
    """Features as networks have them, or with many ties, or all alike."""
    rng = np.random.default_rng(seed)
    kinds = {
        "normal": lambda: rng.normal(size=(rows, width)),
        "relu": lambda: np.maximum(rng.normal(size=(rows, width)), 0) * rng.choice([0, 1e-3, 1, 1e3], (rows, 1)),
        "grid": lambda: rng.integers(-2, 3, (rows, width)),
        "copies": lambda: rng.normal(size=(3, width))[rng.integers(0, 3, rows)],
        "constant": lambda: np.full((rows, width), 0.3),
    }
    return np.asarray(kinds[kind](), np.float32)


def plain_k_center(whole: np.ndarray, candidates: int, count: int) -> list[int]:
    """Every distance to every centre, in whole numbers, one pick after the other."""
    whole, chosen = whole.astype(np.int64), []
    least = np.full(candidates, np.iinfo(np.int64).max)
    for centre in range(candidates, len(whole)):
        least = np.minimum(least, ((whole[:candidates] - whole[centre]) ** 2).sum(axis=1))
    for _ in range(count):
        row = max((i for i in range(candidates) if i not in chosen), key=lambda i: (least[i], -i))
        chosen.append(row)
        least = np.minimum(least, ((whole[:candidates] - whole[row]) ** 2).sum(axis=1))
    return chosen


kinds = st.sampled_from(["normal", "relu", "grid", "copies", "constant"])


@settings(deadline=None)
@given(
    st.integers(0, 999),
    st.integers(1, 60),
    st.integers(0, 20),
    st.integers(1, 40),
    kinds,
    st.tuples(*[st.integers(1, 9)] * 3, st.integers(16, 40)),
    st.data(),
)
def test_the_lazy_k_center_picks_what_the_plain_one_picks(
    seed: int,
    candidates: int,
    labeled: int,
    width: int,
    kind: str,
    sizes: tuple[int, int, int, int],
    data: st.DataObject,
) -> None:
    points = Points.of(rows_of(seed, candidates + labeled, width, kind))
    count = data.draw(st.integers(1, candidates))
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("BLOCK", "FIRST", "TOLD", "SMALL"), sizes, strict=True):
            patch.setattr(centers, name, size)
        found = k_center(points, candidates, count)
    assert found.tolist() == plain_k_center(points.factors[0], candidates, count)


def test_the_lazy_k_center_picks_what_the_plain_one_picks_over_many_blocks() -> None:
    rows = rows_of(0, 3 * centers.BLOCK + 50, 64, "normal")
    candidates = len(rows) - 40
    assert k_center(Points.of(rows), candidates, 60).tolist() == plain_k_center(
        Points.of(rows).factors[0], candidates, 60
    )


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1.0, 1e20, 1e38])
def test_the_scale_of_features_does_not_change_picks(scale: float) -> None:
    rows = rows_of(2, 90, 16, "normal").astype(np.float64)
    rows /= np.abs(rows).max()
    expected = k_center(Points.of(rows), 80, 30).tolist()
    assert k_center(Points.of((rows * scale).astype(np.float32)), 80, 30).tolist() == expected


def test_the_lazy_k_center_picks_what_the_plain_one_picks_where_single_precision_cannot_tell_rows_apart() -> None:
    rows = 1 + rows_of(3, 400, 64, "normal") / 10_000  # a cloud far from zero: products lose what distances are made of
    assert k_center(Points.of(rows), 380, 80).tolist() == plain_k_center(Points.of(rows).factors[0], 380, 80)


def test_few_distances_are_worked_out_twice_and_most_never(monkeypatch: pytest.MonkeyPatch) -> None:
    exactly, nearly = [], []
    settle, guess = centers.Bounds.settle, centers.products
    monkeypatch.setattr(centers.Bounds, "settle", lambda self, rows: (exactly.append(len(rows)), settle(self, rows))[1])
    monkeypatch.setattr(
        centers, "products", lambda rows, others: (nearly.append(len(rows) * len(others)), guess(rows, others))[1]
    )
    k_center(Points.of(rows_of(4, 6000, 64, "normal")), 4900, 100)
    assert sum(exactly) < 200
    assert sum(nearly) < 0.5 * 4900 * (1100 + 100)


def test_rounding_to_whole_numbers_does_not_change_picks_among_distances_that_differ() -> None:
    rows = rows_of(1, 400, 32, "normal").astype(np.float64)
    apart, chosen = cdist(rows, rows), []
    least = apart[:, 380:].min(axis=1)[:380]
    for _ in range(50):
        chosen.append(int(least.argmax()))
        least = np.minimum(least, apart[:380, chosen[-1]])
    assert k_center(Points.of(rows.astype(np.float32)), 380, 50).tolist() == chosen


@given(st.integers(0, 99), st.integers(1, 600), kinds)
def test_distances_are_exact_and_do_not_depend_on_the_block(seed: int, width: int, kind: str) -> None:
    points = Points.of(rows_of(seed, 12, width, kind))
    whole = [[int(value) for value in row] for row in points.factors[0]]
    by_hand = [[sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in whole] for a in whole]
    assert points.squared(slice(0, 12), slice(0, 12)).tolist() == by_hand
    assert [points.squared([row], np.arange(12))[0].tolist() for row in range(12)] == by_hand


def test_the_lengths_of_the_largest_rows_stay_exact() -> None:
    points = Points.of(np.array([[1.0] * 512, [-1.0] * 512, [1 - 2.0**-20] + [1.0] * 511], np.float32))
    assert points.squared([0], [1, 2])[0].tolist() == [4 * 512 / points.unit**2, (2.0**-20 / points.unit) ** 2]


@given(st.integers(0, 99), st.integers(2, 10), st.integers(1, 30))
def test_factored_distances_are_those_of_the_outer_products(seed: int, classes: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    a, h = rng.uniform(-1, 1, (9, classes)), rng.normal(size=(9, width)).astype(np.float32)
    points = Points.of(a, h)
    outer = np.einsum("nc,nd->ncd", a, h).reshape(9, -1)
    assert points.squared(slice(0, 9), slice(0, 9)) * points.unit**2 == pytest.approx(
        cdist(outer, outer, "sqeuclidean"), abs=1e-4
    )
    assert not points.squared(slice(0, 9), slice(0, 9)).diagonal().any()


def test_a_row_is_drawn_in_proportion_to_its_weight() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([distances.drawn(np.array([0, 1.0, 0, 3.0, 0]), rng) for _ in range(4000)], minlength=5)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    assert stats.chisquare(counts[[1, 3]], [1000, 3000]).pvalue > 0.01


SPREAD = np.array([[0, 0], [0, 1], [1, 0], [5, 5], [5, 6], [9, 0]], np.float32)


def pairs(draw: object, times: int) -> np.ndarray:
    """How often each ordered triple of rows was drawn."""
    found = [tuple(draw(seed)) for seed in range(times)]  # type: ignore[operator]
    triples = [(i, j, k) for i in range(6) for j in range(6) for k in range(6) if len({i, j, k}) == 3]
    return np.array([found.count(triple) for triple in triples])


def test_seeds_are_distributed_like_those_of_scikit_learn() -> None:
    ours = pairs(lambda seed: distances.seeds(Points.of(SPREAD), np.ones(6), 3, np.random.default_rng(seed)), 1500)
    theirs = pairs(
        lambda seed: kmeans_plusplus(SPREAD.astype(np.float64), 3, random_state=seed, n_local_trials=1)[1], 1500
    )
    seen = ours + theirs >= 20
    assert stats.chi2_contingency(np.stack([ours[seen], theirs[seen]])).pvalue > 0.01


def test_lagging_distances_do_not_change_the_distribution() -> None:
    """Up to date after each pick, against never within these three."""
    lazy = pairs(lambda seed: distances.seeds(Points.of(SPREAD), np.ones(6), 3, np.random.default_rng(seed)), 1500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "PENDING", 1)
        eager = pairs(
            lambda seed: distances.seeds(Points.of(SPREAD), np.ones(6), 3, np.random.default_rng(10_000 + seed)), 1500
        )
    seen = lazy + eager >= 20
    assert stats.chi2_contingency(np.stack([lazy[seen], eager[seen]])).pvalue > 0.01


def test_seeds_avoid_the_centres_and_follow_the_weights() -> None:
    points = Points.of(np.array([[0.0], [1.0], [2.0], [0.0]], np.float32))  # the last is a centre
    first = [
        int(distances.seeds(points, np.array([9.0, 4.0, 1.0]), 1, np.random.default_rng(seed), [3])[0])
        for seed in range(2000)
    ]
    counts = np.bincount(first, minlength=3)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], [1000, 1000]).pvalue > 0.01


@given(st.integers(0, 99), st.integers(1, 30), kinds)
def test_seeds_are_distinct_down_to_the_whole_pool(seed: int, rows: int, kind: str) -> None:
    found = distances.seeds(Points.of(rows_of(seed, rows, 3, kind)), np.ones(rows), rows, np.random.default_rng(seed))
    assert sorted(found) == list(range(rows))


@given(st.integers(0, 99), kinds)
def test_nearest_neighbours_are_those_of_all_pairs(seed: int, kind: str) -> None:
    points = Points.of(rows_of(seed, 30, 4, kind))
    rows = np.arange(3, 25)
    apart = points.squared(rows, rows)
    np.fill_diagonal(apart, np.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "CELLS", 100)
        assert distances.nearest(points, rows, 5).tolist() == np.sort(apart, axis=1)[:, :5].tolist()


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 25), st.integers(0, 5), st.floats(0.1, 4), kinds)
def test_the_cover_is_that_of_the_neighbour_graph(
    seed: int, candidates: int, labeled: int, radius: float, kind: str
) -> None:
    points = Points.of(rows_of(seed, candidates + labeled, 2, kind))
    edges = points.squared(slice(0, len(points)), slice(0, candidates)) < (radius / points.unit) ** 2
    covered, chosen = edges[candidates:].any(axis=0), []
    while len(chosen) < candidates and (edges[:candidates] & ~covered).sum(axis=1).max() > 0:
        chosen.append(int((edges[:candidates] & ~covered).sum(axis=1).argmax()))
        covered |= edges[chosen[-1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "SQUARE", 1 << 20)
        found = distances.cover(points, candidates, candidates, radius, np.random.default_rng(0))
    assert found[: len(chosen)].tolist() == chosen
    assert sorted(found) == list(range(candidates))


@pytest.mark.parametrize("work", ["k_center", "seeds", "cover", "nearest", "strangers"])
def test_no_matrix_of_all_pairs_is_ever_held(work: str) -> None:
    points, rng = Points.of(rows_of(0, 8000, 4, "normal")), np.random.default_rng(0)
    works = {
        "k_center": lambda: k_center(points, 5000, 100),
        "seeds": lambda: distances.seeds(points, np.ones(5000), 100, rng, range(5000, 8000)),
        "cover": lambda: distances.cover(points, 5000, 100, 0.5, rng),
        "nearest": lambda: distances.nearest(points, np.arange(8000), 20),
        "strangers": lambda: distances.strangers(points, np.arange(8000), np.arange(8000) % 2),
    }
    tracemalloc.start()
    works[work]()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8000 * 8000 * 8 / 3


def test_clusters_come_out_the_same_with_the_same_seed() -> None:
    rows = rows_of(0, 500, 8, "normal")
    first, second, other = (distances.clusters(rows, 60, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
