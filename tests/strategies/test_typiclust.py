"""typiclust: the picks of the released code on the same clusters, restated here as a plain, slow rule."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.acquisition.distances import Points
from codline.strategies.typiclust import Typiclust
from tests.pools import make_pool, select_ids


def released_picks(
    rows: list[tuple[int, ...]], clusters: list[int], labeled: set[int], budget: int, neighbors: int, small: int
) -> list[int]:
    """One image per turn from a fixed list of clusters. Stops early where the released code fails."""
    members = {cluster: [i for i, own in enumerate(clusters) if own == cluster] for cluster in sorted(set(clusters))}
    turns = [cluster for cluster in members if len(members[cluster]) > small]
    turns.sort(key=lambda cluster: (len(labeled & set(members[cluster])), -len(members[cluster])))
    picks: list[int] = []
    for turn in range(budget if turns else 0):
        candidates = [i for i in members[turns[turn % len(turns)]] if i not in labeled and i not in picks]
        if not candidates:
            break
        count = min(neighbors, len(candidates) // 2)

        def distance_sum(i: int, candidates: list[int] = candidates, count: int = count) -> int:
            squared = sorted(sum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True)) for j in candidates)
            return sum(squared[1 : 1 + count])  # the first is the image itself

        picks.append(min(candidates, key=distance_sum))
    return picks


@st.composite
def clustered_images(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], set[int]]:
    """Features on a small grid, so that there are ties; about four clusters, some of them small."""
    count = draw(st.integers(1, 60))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=count, max_size=count))
    clusters = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3]), min_size=count, max_size=count))
    labeled = draw(st.sets(st.integers(0, count - 1), max_size=count // 2))
    return rows, clusters, labeled


@given(images=clustered_images(), neighbors=st.integers(1, 20), small=st.integers(0, 5))
def test_typiclust_picks_what_the_released_code_picks_on_the_same_clusters(
    images: tuple[list[tuple[int, ...]], list[int], set[int]], neighbors: int, small: int
) -> None:
    rows, clusters, labeled = images
    is_labeled = np.isin(np.arange(len(rows)), list(labeled))
    budget = len(rows) - len(labeled)
    expected = released_picks(rows, clusters, labeled, budget, neighbors, small)
    strategy = Typiclust(neighbors=neighbors, small=small)
    points = Points.from_rows(np.array(rows, np.float32))
    picks = strategy.select_rows(points, np.array(clusters), is_labeled, budget)
    assert picks[: len(expected)] == expected
    assert sorted(picks) == np.flatnonzero(~is_labeled).tolist()


@pytest.mark.parametrize(("budget", "runs"), [(20, 10), (60, 3)])
def test_typiclust_clusters_as_often_as_the_released_code(
    monkeypatch: pytest.MonkeyPatch, budget: int, runs: int
) -> None:
    """scikit-learn 1.0.2, which it names, has other defaults than today's."""
    import sklearn.cluster

    found = []
    for kind in ("KMeans", "MiniBatchKMeans"):
        original = getattr(sklearn.cluster, kind)
        monkeypatch.setattr(
            sklearn.cluster, kind, lambda original=original, **options: found.append(options) or original(**options)
        )
    select_ids(Typiclust(), make_pool(images=70), budget)
    select_ids(Typiclust(n_init=2), make_pool(images=70), budget)
    assert [options["n_init"] for options in found] == [runs, 2]
    assert [options["n_clusters"] for options in found] == [6 + budget] * 2
