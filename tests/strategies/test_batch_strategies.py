"""Each strategy that selects whole queries, on a pool small enough to know the answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from codline.acquisition.distances import Points
from codline.core.errors import DataError, UserError
from codline.data import tables
from codline.report import contact_sheet
from codline.strategies.badge import Badge
from codline.strategies.base import BatchStrategy, LabeledFeatures, PoolFeatures
from codline.strategies.cod import Cod
from codline.strategies.cod_diverse import CodDiverse
from codline.strategies.core_set import CoreSet
from codline.strategies.prob_cover import ProbCover
from codline.strategies.typiclust import Typiclust
from tests.pools import REFERENCES, make_learner_context, outputs_from_probs, select_ids
from tests.workspace import Workspace

Rows = Sequence[Sequence[float]]
DIGITS = [str(digit) for digit in range(10)]
LINE = [[0.0], [1], [2], [5], [6], [10]]  # points on a line
A, B, A_OR_B = [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]


def make_pool(
    features: Rows, labeled: Rows = (), now: Rows | None = None, before: Rows | None = None, first_cycle: bool = False
) -> PoolFeatures:
    rows, uniform = np.array(features, np.float32), [A_OR_B] * len(features)
    labeled_rows = np.array(labeled, np.float32).reshape(-1, rows.shape[1])
    labeled_ids, labels = np.arange(100, 100 + len(labeled)), np.zeros(len(labeled), np.int32)
    return PoolFeatures(
        np.arange(len(rows)),
        outputs_from_probs(now or uniform),
        rows,
        LabeledFeatures(labeled_ids, labels, labeled_rows),
        make_learner_context(),
        references=dict.fromkeys(REFERENCES, outputs_from_probs(before or now or uniform)),
        first_cycle=first_cycle,
    )


def count_picks(strategy: BatchStrategy, pool: PoolFeatures, budget: int, trials: int = 1000) -> np.ndarray:
    """How often each image is in the query."""
    picks = [i for seed in range(trials) for i in select_ids(strategy, pool, budget, seed)]
    return np.bincount(picks, minlength=len(pool.ids))


def count_second_picks(strategy: BatchStrategy, pool: PoolFeatures, trials: int = 2000) -> np.ndarray:
    return np.bincount([select_ids(strategy, pool, 2, seed)[1] for seed in range(trials)], minlength=len(pool.ids))


def follow(counts: np.ndarray, weights: np.ndarray) -> bool:
    """Whether the counts are compatible with draws proportional to the weights."""
    possible = weights > 0
    expected = counts.sum() * weights[possible] / weights.sum()
    return not counts[~possible].any() and bool(stats.chisquare(counts[possible], expected).pvalue > 0.01)


def test_core_set_picks_the_image_farthest_from_all_centers() -> None:
    # The image at 10; then the one at 5, in the middle; then the one at 2, two from 0 and three from 5.
    assert select_ids(CoreSet(), make_pool(LINE, [[0.0]]), 3) == [5, 3, 2]


def test_core_set_breaks_ties_by_the_smaller_id() -> None:
    assert select_ids(CoreSet(), make_pool([[1.0], [-1], [1], [-1]], [[0.0]]), 4) == [0, 1, 2, 3]


def test_core_set_measures_distances_to_the_labeled_rows() -> None:
    """Some public code takes positions in the pool for positions among all rows, and covers the wrong ones."""
    rng = np.random.default_rng(0)
    pool, labeled = rng.normal(size=(200, 5)), rng.normal(size=(50, 5)) + 2
    nearest, picks = cdist(pool, labeled).min(axis=1), list[int]()
    for _ in range(30):
        picks.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, cdist(pool, pool[picks[-1:]])[:, 0])
    assert select_ids(CoreSet(), make_pool(pool.tolist(), labeled.tolist()), 30) == picks


def test_badge_starts_with_the_longest_gradient_and_continues_by_k_means_plus_plus() -> None:
    now = [A_OR_B, A_OR_B, A_OR_B, A]  # the model is certain of the last image: its gradient is zero
    pool = make_pool([[3.0, 0], [3, 0], [0, 2], [9, 9]], now=now)
    assert select_ids(Badge(), pool, 1) == [0]
    assert follow(count_second_picks(Badge(), pool), np.array([0, 0, 9 + 4, 9]))


def test_badge_can_start_with_any_image() -> None:
    counts = count_picks(Badge(first="any"), make_pool([[3.0], [1], [0], [2]]), 1)
    assert follow(counts, np.ones(4))


def test_badge_uses_the_gradient_for_the_most_probable_class() -> None:
    """With a feature of 1, the gradient is (p - 1, 1 - p) for the first class and (p, -p) for the second."""
    pool = make_pool([[1.0]] * 3, now=[[0.6, 0.4], [0.4, 0.6], [0.9, 0.1]])
    assert follow(count_second_picks(Badge(), pool), np.array([0, 2 * 0.8**2, 2 * 0.3**2]))


def test_typiclust_picks_the_densest_image_of_each_cluster_largest_first() -> None:
    large = [[0.0, -1], [0, 0], [0, 1], [0, 0.1], [0, -0.1], [0, 2], [0, -2]]
    medium = [[50.0, 0], [50, 1], [50, -1], [50, 3], [50, -3], [50, 0.5]]
    strategy = Typiclust(neighbors=2, max_clusters=2, normalized=False)
    assert select_ids(strategy, make_pool(medium + large), 2) == [7, 5]


def test_typiclust_takes_turns_and_starts_with_the_cluster_with_the_fewest_labels() -> None:
    large, small = [[x / 10] for x in range(20)], [[50.0], [51], [51.5]]
    strategy = Typiclust(max_clusters=2, small=2, normalized=False)
    first, second, third = select_ids(strategy, make_pool(large + small, [[0.0], [0.1]]), 3)
    assert (first, second < 20, third) == (21, True, 20)


def test_typiclust_uses_small_clusters_last() -> None:
    outliers = [[99.0], [-99.0]]
    pool = make_pool(outliers + [[x / 10] for x in range(8)])
    query = select_ids(Typiclust(max_clusters=3, normalized=False), pool, 10)
    assert set(query[:8]) == set(range(2, 10))
    assert set(query[8:]) == {0, 1}


def test_prob_cover_picks_the_image_with_most_uncovered_neighbors() -> None:
    line = [[0.0], [0.5], [1.0], [5.0], [5.5], [20.0]]
    strategy = ProbCover(radius=0.75, normalized=False)
    assert select_ids(strategy, make_pool(line), 3) == [1, 3, 5]
    assert select_ids(strategy, make_pool(line, [[5.2]]), 2) == [1, 5]


def test_prob_cover_draws_uniformly_once_everything_is_covered() -> None:
    """Public code picks the first row again and again, even if it is labeled."""
    counts = count_picks(ProbCover(radius=100.0, normalized=False), make_pool(LINE), 2)
    assert counts[0] == 1000
    assert follow(counts[1:], np.ones(5))


def test_prob_cover_finds_the_largest_radius_with_pure_neighborhoods() -> None:
    near, far = [[x / 10] for x in range(10)], [[5 + x / 10] for x in range(10)]  # 4.1 apart
    pool, clusters = make_pool(near + far), np.repeat([0, 1], 10)
    points = Points.from_rows(pool.features_ND)
    radius = {
        purity: ProbCover(purity=purity).pure_radius(points, clusters, np.random.default_rng(0))
        for purity in (1.0, 0.9, 0.5)
    }
    assert radius == pytest.approx({1.0: 4.1, 0.9: 4.2, 0.5: 4.6}, abs=0.11)
    assert radius[1.0] == pytest.approx(4.1, abs=1e-5)
    assert set(select_ids(ProbCover(normalized=False), pool, 2)) == {0, 10}  # each covers its cluster


# Discrepancies of the images on the line: 0, √2, 0, √½, √2, 0.
CHANGES = {"now": [A_OR_B, B, A, A_OR_B, B, A], "before": [A_OR_B, A, A, A, A, A]}


def test_cod_diverse_seeding_draws_by_distance_and_discrepancy() -> None:
    counts = count_picks(CodDiverse(form="seeding"), make_pool(LINE, [[0.0]], **CHANGES), 1, 2000)
    discrepancies = np.array([0, np.sqrt(2), 0, np.sqrt(0.5), np.sqrt(2), 0])
    assert follow(counts, np.array([0, 1, 4, 25, 36, 100]) * discrepancies)


def test_cod_diverse_can_weight_the_discrepancy_more() -> None:
    pool = make_pool(LINE, [[0.0]], **CHANGES)
    strong, weak = (count_picks(CodDiverse(form="seeding", power=power), pool, 1) for power in (8.0, 1.0))
    assert strong[3] < weak[3] / 2


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({"pool_factor": 1.0}, [4, 1]),
        ({"pool_factor": 1.5}, [4, 3]),  # the image at 5 is 1 from the one at 6; that at 1 is 0.5 from the labeled one
        ({"pool_factor": 1.0, "beyond_labeled": False}, [1, 4]),
    ],
)
def test_cod_diverse_k_center_spreads_the_highest_scores(settings: dict[str, float | bool], query: list[int]) -> None:
    strategy = CodDiverse.model_validate({"form": "k_center", **settings})
    assert select_ids(strategy, make_pool(LINE, [[0.5]], **CHANGES), 2) == query


@pytest.mark.parametrize(("form", "sharpness"), [("gradients", 4.0), ("unsure", 1.0), ("unsure", 2.0)])
def test_cod_diverse_draws_gradients_by_distance_discrepancy_and_margin(
    form: Literal["gradients", "unsure"], sharpness: float
) -> None:
    """The first pick has the largest weight x squared norm; the second is drawn by weight x squared distance."""
    now, before = [[0.6, 0.4], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]], [[0.1, 0.9], [0.6, 0.4], [0.5, 0.5], [0.8, 0.2]]
    pool = make_pool([[9.0, 0], [0, 5], [0, 3], [2, 1]], now=now, before=before)
    probs, strategy = np.array(now), CodDiverse(form=form, sharpness=sharpness)
    residuals = probs - np.eye(2)[probs.argmax(1)]
    gradients = (residuals[:, :, None] * pool.features_ND[:, None, :]).reshape(4, -1)
    discrepancies, margins = np.linalg.norm(probs - before, axis=1), np.abs(probs[:, 0] - probs[:, 1])
    weights = discrepancies if form == "gradients" else np.sqrt(discrepancies) * (1 - margins) ** sharpness
    assert select_ids(strategy, pool, 1) == [0]
    assert follow(count_second_picks(strategy, pool), weights * np.square(gradients - gradients[0]).sum(1))


def test_strategies_with_gradients_refuse_segmentation() -> None:
    for strategy in (CodDiverse(form="gradients"), CodDiverse(form="unsure"), Badge()):
        strategy.check_task("classification")
        with pytest.raises(UserError, match="which is not defined for segmentation"):
            strategy.check_task("segmentation")
    CodDiverse(form="k_center").check_task("segmentation")


@pytest.mark.parametrize("form", ["unsure", "gradients", "seeding", "k_center"])
def test_cod_diverse_follows_the_first_cycle_rule_of_cod(form: str) -> None:
    pool = make_pool([[1.0]] * 3, [[0.0]], [A, A_OR_B, A], [A_OR_B] * 3, first_cycle=True)
    smallest, uniform, largest = (
        CodDiverse.model_validate({"form": form, "pool_factor": 1.0, "first_cycle": rule})
        for rule in ("smallest", "uniform", "largest")
    )
    assert select_ids(smallest, pool, 1) == select_ids(uniform, replace(pool, references={}), 1) == [1]
    assert select_ids(largest, pool, 1)[0] in (0, 2)


def test_cod_diverse_needs_the_reference_model_of_cod() -> None:
    for kind in (Cod, CodDiverse):
        assert kind(first_cycle="snapshot", steps=9).reference_models(first_cycle=True) == {9}


@pytest.mark.parametrize("strategy", [CoreSet(), Badge(), Typiclust(), ProbCover(), CodDiverse()])
def test_features_that_are_not_finite_are_refused(strategy: BatchStrategy) -> None:
    with pytest.raises(DataError, match=r"^features of image 2: found NaN or infinity, expected finite numbers$"):
        select_ids(strategy, make_pool([[0.0], [1], [np.nan], [np.inf]]), 2)


@pytest.mark.parametrize("strategy", [Badge(), CodDiverse()])
def test_outputs_that_are_not_finite_are_refused(strategy: BatchStrategy) -> None:
    with pytest.raises(DataError, match=r"^outputs of image 1: found NaN or infinity, expected finite numbers$"):
        select_ids(strategy, make_pool([[0.0], [1]], now=[A, [np.nan, np.nan]]), 1)


@pytest.mark.parametrize(
    ("name", "cycle"),
    [("core_set", "c1"), ("badge", "c2"), ("typiclust", "c1"), ("prob_cover", "c2"), ("cod_diverse", "c1")],
)
def test_score_stage_writes_the_query_as_descending_scores(workspace: Workspace, name: str, cycle: str) -> None:
    workspace.change(**{"score.strategy": {"name": name}, "select.budget": 20})
    for stage in ("score", "select"):
        workspace.run(stage, cycle)
    path = workspace.path("score", "scores", cycle)
    scores = tables.read_table(path, tables.SCORES)["score"].to_pylist()
    assert sorted(scores, reverse=True) == [*range(20, 0, -1), *[0] * (len(scores) - 20)]
    query = tables.read_table(workspace.path("select", "query", cycle), tables.QUERY)
    assert query["score"].to_pylist() == list(range(20, 0, -1))
    assert not tables.ranks_pool(path)
    assert not tables.ranks_pool(workspace.path("select", "query", cycle))
    captions = contact_sheet.image_captions(workspace.pipeline, cycle, query, DIGITS)
    assert [place for _, place in captions] == [f"#{rank}" for rank in range(1, 21)]
    before = path.read_bytes()
    workspace.change(**{"score.batch_size": 64})
    workspace.run("score", cycle)
    assert path.read_bytes() == before
