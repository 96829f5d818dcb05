"""evidence: how well scores foretold losses, by hand and against scipy."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from codline.acquisition.discrepancy import discrepancy
from codline.cli.plugins import members
from codline.data.output_store import softmax
from codline.evaluation import rank_statistics
from codline.strategies.base import Outputs, Pool
from codline.strategies.cod import Cod

values = arrays(
    np.float64, st.shared(st.integers(1, 300), key="images"), elements=st.floats(-5, 5).map(lambda x: round(x, 1))
)
EVERYONE = np.arange(200)
HARD_LAST = EVERYONE.astype(float)  # losses of which the last are the highest


def correlated(images: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=images)
    return scores, scores + noise * rng.normal(size=images)


@given(values, values)
def test_a_capture_is_a_share_for_every_percent_and_ends_with_everyone(scores: np.ndarray, losses: np.ndarray) -> None:
    captured = rank_statistics.capture(scores, losses, np.arange(len(scores)))
    assert captured.shape == (100,)
    assert ((captured >= 0) & (captured <= 1)).all()
    assert captured[-1] == 1


@given(values, values)
def test_a_capture_is_the_count_of_images_in_both_tops(scores: np.ndarray, losses: np.ndarray) -> None:
    ids = np.arange(len(scores))[::-1]
    captured = rank_statistics.capture(scores, losses, ids)
    for percent in (1, 10, 33, 50, 99):
        top = int(np.ceil(percent * len(ids) / 100))
        both = set(rank_statistics.ranked(scores, ids)[:top].tolist()) & set(
            rank_statistics.ranked(losses, ids)[:top].tolist()
        )
        assert captured[percent - 1] == pytest.approx(len(both) / top)


@given(values)
def test_scores_that_are_the_losses_capture_all_of_them(losses: np.ndarray) -> None:
    captured = rank_statistics.capture(losses, losses, np.arange(len(losses)))
    assert (captured == 1).all()
    assert rank_statistics.capture_gain(captured) == pytest.approx(1)


def test_reversed_scores_capture_nothing_until_the_halves_meet() -> None:
    captured = rank_statistics.capture(-HARD_LAST, HARD_LAST, EVERYONE)
    assert (captured[:50] == 0).all()
    assert captured[74] == pytest.approx(0.5 / 0.75)
    assert rank_statistics.capture_gain(captured) < -0.3


def test_scores_by_chance_capture_as_much_as_they_look_at() -> None:
    rng = np.random.default_rng(0)
    captured = rank_statistics.capture(rng.random(20_000), rng.random(20_000), np.arange(20_000))
    assert captured == pytest.approx(np.arange(1, 101) / 100, abs=0.03)
    assert rank_statistics.capture_gain(captured) == pytest.approx(0, abs=0.01)


def test_ties_go_to_the_smaller_id() -> None:
    assert rank_statistics.ranked(np.array([1.0, 2.0, 1.0, 2.0]), np.array([9, 8, 7, 6])).tolist() == [3, 1, 2, 0]
    ids = EVERYONE[::-1]
    assert (rank_statistics.capture(np.zeros(200), -ids.astype(float), ids) == 1).all()


@given(values, values)
def test_spearman_is_scipy_s(a: np.ndarray, b: np.ndarray) -> None:
    found = rank_statistics.spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(a, b).statistic)


def test_a_resample_is_ranked_anew() -> None:
    """One draw makes an interval of one point: the rank correlation of just the images drawn, twice those that were drawn twice."""
    a, b = correlated(30, 1.0)
    drawn = np.random.default_rng(7).integers(30, size=30)
    low, high = rank_statistics.spearman_interval(a, b, np.random.default_rng(7), 1) or (0.0, 0.0)
    assert low == high == pytest.approx(spearmanr(a[drawn], b[drawn]).statistic)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0, 20.0])
def test_the_interval_is_around_the_estimate_and_narrows_with_more_images(noise: float) -> None:
    widths = []
    for images in (50, 2000):
        a, b = correlated(images, noise)
        low, high = rank_statistics.spearman_interval(a, b, np.random.default_rng(1), 500) or (0.0, 0.0)
        found = rank_statistics.spearman(a, b)
        assert found is not None
        assert low - 1e-9 <= found <= high + 1e-9
        widths.append(high - low)
    assert widths[1] <= widths[0] / 4 + 1e-9


def test_the_interval_has_the_width_that_theory_gives_independent_images() -> None:
    """Without correlation, Spearman's standard error is 1 / sqrt(n - 1)."""
    rng = np.random.default_rng(3)
    low, high = rank_statistics.spearman_interval(rng.random(1000), rng.random(1000), rng, 2000) or (0.0, 0.0)
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(999), rel=0.1)


def test_the_same_generator_gives_the_same_interval_and_flat_values_none() -> None:
    a, b = correlated(100, 1.0)
    found = [rank_statistics.spearman_interval(a, b, np.random.default_rng(seed), 50) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert rank_statistics.spearman_interval(np.ones(5), a[:5], np.random.default_rng(0), 50) is None


def test_buckets_hold_equal_shares_from_the_most_wanted_to_the_least() -> None:
    assert rank_statistics.bucket_losses(HARD_LAST, HARD_LAST, EVERYONE, 20).tolist() == [
        194.5 - 10 * i for i in range(20)
    ]
    assert rank_statistics.bucket_losses(HARD_LAST[:3], HARD_LAST[:3], EVERYONE[:3], 20).tolist() == [2, 1, 0]


def test_overlap_is_the_share_of_the_first_query() -> None:
    assert rank_statistics.overlap(np.array([1, 2, 3, 4]), np.array([4, 3, 9])) == 0.5
    assert rank_statistics.overlap(np.array([1]), np.array([2])) == 0


def test_rivals_score_as_the_strategies_of_their_names_do() -> None:
    rng = np.random.default_rng(0)
    probs, previous = (softmax(rng.normal(size=(50, 4)) * 3) for _ in range(2))
    pool = Pool(np.arange(50), Outputs(np.log(probs), probs), {"previous": Outputs(np.log(previous), previous)})
    kinds = {kind.model_fields["name"].default: kind for kind in members("strategies")}
    for name, scores in rank_statistics.rivals(probs).items():
        assert scores.tolist() == kinds[name]().scores(pool, np.random.default_rng(5)).tolist()
    assert Cod().scores(pool, rng).tolist() == discrepancy(probs, previous).tolist()
