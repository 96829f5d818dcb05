"""Each strategy that chooses whole queries, on a pool small enough to know the answer."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from codline.acquisition.distances import Points
from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import DataError, UserError
from codline.data import tables
from codline.strategies.badge import Badge
from codline.strategies.base import Chooser, Known, Outputs, Whole
from codline.strategies.cod import Cod
from codline.strategies.cod_diverse import CodDiverse
from codline.strategies.core_set import CoreSet
from codline.strategies.prob_cover import ProbCover
from codline.strategies.typiclust import Typiclust
from tests.workspace import Workspace

BENCH = LearnerContext(lambda _: None, None, 0, lambda *_: None)
LINE = [[0.0], [1], [2], [5], [6], [10]]  # one feature: places on a line


def whole_of(
    features: Sequence[Sequence[float]],
    labeled: Sequence[Sequence[float]] = (),
    now: Sequence[Sequence[float]] | None = None,
    before: Sequence[Sequence[float]] | None = None,
    first_cycle: bool = False,
) -> Whole:
    rows = np.array(features, np.float32)
    ours = said(now or [[0.5, 0.5]] * len(rows))
    others = dict.fromkeys(("previous", "independent", 100), said(before or now or [[0.5, 0.5]] * len(rows)))
    known = Known(
        np.arange(100, 100 + len(labeled)),
        np.zeros(len(labeled), np.int32),
        np.array(labeled, np.float32).reshape(-1, rows.shape[1]),
    )
    return Whole(np.arange(len(rows)), ours, rows, known, BENCH, others, first_cycle)


def said(probs: Sequence[Sequence[float]]) -> Outputs:
    with np.errstate(divide="ignore"):
        return Outputs(np.log(probs), np.array(probs))


def chosen(strategy: Chooser, pool: Whole, budget: int, seed: int = 0) -> list[int]:
    return [int(i) for i in strategy.choose(pool, budget, np.random.default_rng(seed))]


def often(strategy: Chooser, pool: Whole, budget: int, times: int = 1000) -> np.ndarray:
    """How often each image is in the query."""
    return np.bincount(
        [i for seed in range(times) for i in chosen(strategy, pool, budget, seed)], minlength=len(pool.ids)
    )


def test_core_set_takes_the_furthest_from_all_centres_one_after_the_other() -> None:
    assert chosen(CoreSet(), whole_of(LINE, [[0.0]]), 3) == [
        5,
        3,
        2,
    ]  # 10; then 5, in the middle; then 2, two from 0 and three from 5


def test_core_set_gives_ties_to_the_smaller_id() -> None:
    assert chosen(CoreSet(), whole_of([[1.0], [-1], [1], [-1]], [[0.0]]), 4) == [0, 1, 2, 3]


def test_core_set_measures_against_the_labelled_rows_and_no_others() -> None:
    """Some public code looks up rows of the pool among all rows, and covers the wrong ones."""
    rng = np.random.default_rng(0)
    pool, labeled = rng.normal(size=(200, 5)), rng.normal(size=(50, 5)) + 2
    least, picks = cdist(pool, labeled).min(axis=1), []
    for _ in range(30):
        picks.append(int(least.argmax()))
        least = np.minimum(least, cdist(pool, pool[picks[-1:]])[:, 0])
    assert chosen(CoreSet(), whole_of(pool.tolist(), labeled.tolist()), 30) == picks


def test_badge_starts_with_the_longest_gradient_and_goes_on_to_another_direction() -> None:
    now = [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]  # of the last, the model is sure: its gradient is zero
    pool = whole_of([[3.0, 0], [3, 0], [0, 2], [9, 9]], now=now)
    assert chosen(Badge(), pool, 1) == [0]
    second = np.bincount([chosen(Badge(), pool, 2, seed)[1] for seed in range(2000)], minlength=4)
    apart = np.array([0, 0, 9 + 4, 9])  # |h_i|² + |h_j|² where h_i.h_j = 0, and |h_i|² for the zero
    assert second[:2].tolist() == [0, 0]
    assert stats.chisquare(second[2:], 2000 * apart[2:] / apart.sum()).pvalue > 0.01


def test_badge_may_start_anywhere_as_k_means_plus_plus_does() -> None:
    found = often(Badge(first="any"), whole_of([[3.0], [1], [0], [2]]), 1)
    assert stats.chisquare(found).pvalue > 0.01


def test_badge_looks_at_the_gradient_of_the_likeliest_class() -> None:
    """Two classes, one feature of 1: (p - 1, 1 - p) for the first class, (p, -p) for the second."""
    pool = whole_of([[1.0]] * 3, now=[[0.6, 0.4], [0.4, 0.6], [0.9, 0.1]])
    second = np.bincount([chosen(Badge(), pool, 2, seed)[1] for seed in range(2000)], minlength=3)
    apart = np.array([0, 2 * 0.8**2, 2 * 0.3**2])
    assert second[0] == 0
    assert stats.chisquare(second[1:], 2000 * apart[1:] / apart.sum()).pvalue > 0.01


def test_typiclust_takes_the_densest_of_each_cluster_the_largest_first() -> None:
    large, medium = (
        [[0.0, -1], [0, 0], [0, 1], [0, 0.1], [0, -0.1], [0, 2], [0, -2]],
        [[50.0, 0], [50, 1], [50, -1], [50, 3], [50, -3], [50, 0.5]],
    )
    strategy = Typiclust(neighbors=2, max_clusters=2, normalized=False)
    assert chosen(strategy, whole_of(medium + large), 2) == [7, 5]


def test_typiclust_takes_the_cluster_with_the_fewest_labels_however_small() -> None:
    large, small = [[x / 10] for x in range(20)], [[50.0], [51], [51.5]]
    strategy = Typiclust(max_clusters=2, small=2, normalized=False)
    assert chosen(strategy, whole_of(large + small, [[0.0], [0.1]]), 3)[:2] == [21, 22]


def test_typiclust_leaves_small_clusters_until_the_others_are_empty() -> None:
    outliers = [[99.0], [-99.0]]
    strategy = Typiclust(max_clusters=3, normalized=False)
    found = chosen(strategy, whole_of(outliers + [[x / 10] for x in range(8)]), 10)
    assert set(found[:8]) == set(range(2, 10))
    assert set(found[8:]) == {0, 1}


def test_prob_cover_takes_whoever_covers_the_most_that_is_not_covered() -> None:
    line = [[0.0], [0.5], [1.0], [5.0], [5.5], [20.0]]
    strategy = ProbCover(radius=0.75, normalized=False)
    assert chosen(strategy, whole_of(line), 3) == [1, 3, 5]
    assert chosen(strategy, whole_of(line, [[5.2]]), 2) == [1, 5]


def test_prob_cover_never_asks_twice_once_all_is_covered() -> None:
    """Public code takes the first row again and again, even if it is labelled."""
    found = often(ProbCover(radius=100.0, normalized=False), whole_of(LINE), 2)
    assert found[0] == 1000
    assert stats.chisquare(found[1:]).pvalue > 0.01


def test_prob_cover_finds_the_radius_at_which_neighbourhoods_are_pure() -> None:
    near, far = [[x / 10] for x in range(10)], [[5 + x / 10] for x in range(10)]
    pool = whole_of(near + far)  # two classes, two clusters: 4.1 from the last of one to the first of the other
    points = Points.of(pool.features_ND)
    groups = np.repeat([0, 1], 10)
    radius = {
        purity: ProbCover(purity=purity).pure_radius(points, groups, np.random.default_rng(0))
        for purity in (1.0, 0.9, 0.5)
    }
    assert radius == pytest.approx({1.0: 4.1, 0.9: 4.2, 0.5: 4.6}, abs=0.11)
    assert radius[1.0] == pytest.approx(4.1, abs=1e-5)
    assert set(chosen(ProbCover(normalized=False), pool, 2)) == {0, 10}  # each covers its cluster


SURE, TORN, TURNED = [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]
MOVED = {
    "now": [TORN, TURNED, SURE, TORN, TURNED, SURE],
    "before": [TORN, SURE, SURE, SURE, SURE, SURE],
}  # by 0, √2, 0, √½, √2, 0


def test_cod_diverse_draws_by_distance_and_discrepancy() -> None:
    pool = whole_of(LINE, [[0.0]], **MOVED)
    found = often(CodDiverse(form="seeding"), pool, 1, 2000)
    expected = np.array([0, 1, 4, 25, 36, 100]) * np.array([0, np.sqrt(2), 0, np.sqrt(0.5), np.sqrt(2), 0])
    assert found[expected == 0].tolist() == [0, 0, 0]
    assert stats.chisquare(found[expected > 0], 2000 * expected[expected > 0] / expected.sum()).pvalue > 0.01


def test_cod_diverse_can_weigh_discrepancy_more() -> None:
    pool = whole_of(LINE, [[0.0]], **MOVED)
    assert often(CodDiverse(form="seeding", power=8.0), pool, 1)[3] < often(CodDiverse(form="seeding"), pool, 1)[3] / 2


def test_cod_diverse_spreads_what_cod_wants_most() -> None:
    pool = whole_of(LINE, [[0.5]], **MOVED)
    assert chosen(CodDiverse(form="k_center", pool_factor=1.0), pool, 2) == [4, 1]
    assert chosen(CodDiverse(form="k_center", pool_factor=1.5), pool, 2) == [
        4,
        3,
    ]  # 5 is one from 6, but 1 is half of that from 0.5
    assert chosen(CodDiverse(form="k_center", pool_factor=1.0, beyond_labeled=False), pool, 2) == [1, 4]


@pytest.mark.parametrize(("form", "sharpness"), [("gradients", 4.0), ("unsure", 1.0), ("unsure", 2.0)])
def test_cod_diverse_draws_among_gradients_by_discrepancy_and_distance(
    form: Literal["gradients", "unsure"], sharpness: float
) -> None:
    """The first is that of the largest weight x length; of the others, weight x squared distance of the outer products is the chance."""
    now, before = [[0.6, 0.4], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]], [[0.1, 0.9], [0.6, 0.4], [0.5, 0.5], [0.8, 0.2]]
    pool = whole_of([[9.0, 0], [0, 5], [0, 3], [2, 1]], now=now, before=before)
    probs, features, other = np.array(now), pool.features_ND, np.array(before)
    steps = probs - np.eye(2)[probs.argmax(1)]
    outer = (steps[:, :, None] * features[:, None, :]).reshape(4, -1)
    moved = np.linalg.norm(probs - other, axis=1)
    weights = moved if form == "gradients" else np.sqrt(moved) * (1 - np.abs(probs[:, 0] - probs[:, 1])) ** sharpness
    chances = weights * np.square(outer - outer[0]).sum(1)
    strategy = CodDiverse(form=form, sharpness=sharpness)
    drawn = [chosen(strategy, pool, 2, seed) for seed in range(2000)]
    assert {query[0] for query in drawn} == {0}
    found = np.bincount([query[1] for query in drawn], minlength=4)
    assert found[1] == 0  # it did not move
    assert stats.chisquare(found[2:], 2000 * chances[2:] / chances[2:].sum()).pvalue > 0.01


def test_gradients_are_not_for_pixels() -> None:
    for strategy in (CodDiverse(form="gradients"), CodDiverse(form="unsure"), Badge()):
        strategy.suited("classification")
        with pytest.raises(UserError, match="which is not defined for segmentation"):
            strategy.suited("segmentation")
    CodDiverse(form="k_center").suited("segmentation")


@pytest.mark.parametrize("form", ["unsure", "gradients", "seeding", "k_center"])
def test_cod_diverse_takes_its_first_cycle_as_cod_does(form: str) -> None:
    pool = whole_of([[1.0], [1.0], [1.0]], [[0.0]], [SURE, TORN, SURE], [TORN, TORN, TORN], first_cycle=True)
    assert chosen(CodDiverse.model_validate({"form": form, "pool_factor": 1.0}), pool, 1) == [1]
    assert chosen(CodDiverse.model_validate({"form": form, "pool_factor": 1.0, "first_cycle": "largest"}), pool, 1)[
        0
    ] in (0, 2)
    assert (
        CodDiverse(first_cycle="snapshot", steps=9).needs(True)
        == Cod(first_cycle="snapshot", steps=9).needs(True)
        == {9}
    )


@pytest.mark.parametrize("strategy", [CoreSet(), Badge(), Typiclust(), ProbCover(), CodDiverse()])
def test_features_that_are_not_finite_are_refused_with_a_sentence(strategy: Chooser) -> None:
    with pytest.raises(DataError, match=r"^features of image 2: found NaN or infinity, expected finite numbers$"):
        chosen(strategy, whole_of([[0.0], [1], [np.nan], [np.inf]]), 2)


@pytest.mark.parametrize("strategy", [Badge(), CodDiverse()])
def test_outputs_that_are_not_finite_are_refused_with_a_sentence(strategy: Chooser) -> None:
    with pytest.raises(DataError, match=r"^outputs of image 1: found NaN or infinity, expected finite numbers$"):
        chosen(strategy, whole_of([[0.0], [1]], now=[SURE, [np.nan, np.nan]]), 1)


@pytest.mark.parametrize("cycle", ["c1", "c2"])
@pytest.mark.parametrize("name", ["core_set", "badge", "typiclust", "prob_cover", "cod_diverse"])
def test_the_stage_writes_the_query_as_falling_scores(workspace: Workspace, name: str, cycle: str) -> None:
    workspace.change(**{"score.strategy": {"name": name}, "select.budget": 20})
    for stage in ("score", "select"):
        workspace.run(stage, cycle)
    scores = tables.read(workspace.path("score", "scores", cycle), tables.SCORES)
    assert sorted(scores["score"].to_pylist(), reverse=True) == [*range(20, 0, -1), *[0] * (len(scores) - 20)]
    query = tables.read(workspace.path("select", "query", cycle), tables.QUERY)
    assert query["score"].to_pylist() == list(range(20, 0, -1))
    before = workspace.path("score", "scores", cycle).read_bytes()
    workspace.change(**{"score.batch_size": 64})
    workspace.run("score", cycle)
    assert workspace.path("score", "scores", cycle).read_bytes() == before
