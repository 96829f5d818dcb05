"""rank_statistics: how well scores rank images by loss, against hand computations and scipy."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from codline.acquisition.discrepancy import discrepancy
from codline.cli.plugins import members
from codline.data.output_store import softmax
from codline.evaluation import rank_statistics
from codline.strategies.base import Outputs, PoolChunk
from codline.strategies.cod import Cod

values = arrays(
    np.float64, st.shared(st.integers(1, 300), key="images"), elements=st.floats(-5, 5).map(lambda x: round(x, 1))
)
IDS = np.arange(200)
RISING = IDS.astype(float)  # losses that rise with the id


def correlated_values(images: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=images)
    return scores, scores + noise * rng.normal(size=images)


@given(values, values)
def test_capture_curve_is_a_share_for_every_percent_and_ends_at_1(scores: np.ndarray, losses: np.ndarray) -> None:
    captured = rank_statistics.capture_curve(scores, losses, np.arange(len(scores)))
    assert captured.shape == (100,)
    assert ((captured >= 0) & (captured <= 1)).all()
    assert captured[-1] == 1


@given(values, values)
def test_capture_curve_counts_the_images_in_both_tops(scores: np.ndarray, losses: np.ndarray) -> None:
    ids = np.arange(len(scores))[::-1]
    captured = rank_statistics.capture_curve(scores, losses, ids)
    for percent in (1, 10, 33, 50, 99):
        top = int(np.ceil(percent * len(ids) / 100))
        tops = (set(rank_statistics.descending_order(column, ids)[:top].tolist()) for column in (scores, losses))
        assert captured[percent - 1] == pytest.approx(len(set.intersection(*tops)) / top)


@given(values)
def test_capture_curve_of_the_losses_themselves_is_ideal(losses: np.ndarray) -> None:
    captured = rank_statistics.capture_curve(losses, losses, np.arange(len(losses)))
    assert (captured == 1).all()
    assert rank_statistics.capture_gain(captured) == pytest.approx(1)


def test_capture_curve_of_reversed_scores_is_0_until_the_halves_meet() -> None:
    captured = rank_statistics.capture_curve(-RISING, RISING, IDS)
    assert (captured[:50] == 0).all()
    assert captured[74] == pytest.approx(0.5 / 0.75)
    assert rank_statistics.capture_gain(captured) < -0.3


def test_capture_curve_of_random_scores_is_the_diagonal() -> None:
    rng = np.random.default_rng(0)
    captured = rank_statistics.capture_curve(rng.random(20_000), rng.random(20_000), np.arange(20_000))
    assert captured == pytest.approx(np.arange(1, 101) / 100, abs=0.03)
    assert rank_statistics.capture_gain(captured) == pytest.approx(0, abs=0.01)


def test_descending_order_breaks_ties_by_ascending_id() -> None:
    assert rank_statistics.descending_order(np.array([1.0, 2.0, 1.0, 2.0]), np.array([9, 8, 7, 6])).tolist() == [
        3,
        1,
        2,
        0,
    ]
    ids = IDS[::-1]
    assert (rank_statistics.capture_curve(np.zeros(200), -ids.astype(float), ids) == 1).all()


@given(values, values)
def test_spearman_is_that_of_scipy(a: np.ndarray, b: np.ndarray) -> None:
    value = rank_statistics.spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert value is None
    else:
        assert value == pytest.approx(spearmanr(a, b).statistic)


def test_spearman_interval_ranks_each_resample_anew() -> None:
    """The interval of a single resample is a point: the rank correlation of the images drawn, with repeats."""
    a, b = correlated_values(30, 1.0)
    draw = np.random.default_rng(7).integers(30, size=30)
    low, high = rank_statistics.spearman_interval(a, b, np.random.default_rng(7), 1) or (0.0, 0.0)
    assert low == high == pytest.approx(spearmanr(a[draw], b[draw]).statistic)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0, 20.0])
def test_spearman_interval_contains_the_estimate_and_narrows_with_more_images(noise: float) -> None:
    widths = []
    for images in (50, 2000):
        a, b = correlated_values(images, noise)
        low, high = rank_statistics.spearman_interval(a, b, np.random.default_rng(1), 500) or (0.0, 0.0)
        estimate = rank_statistics.spearman(a, b)
        assert estimate is not None
        assert low - 1e-9 <= estimate <= high + 1e-9
        widths.append(high - low)
    assert widths[1] <= widths[0] / 4 + 1e-9


def test_spearman_interval_of_independent_values_has_the_theoretical_width() -> None:
    """Without correlation, Spearman's standard error is 1 / sqrt(n - 1)."""
    rng = np.random.default_rng(3)
    low, high = rank_statistics.spearman_interval(rng.random(1000), rng.random(1000), rng, 2000) or (0.0, 0.0)
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(999), rel=0.1)


def test_spearman_interval_depends_on_the_generator_and_is_none_for_constant_values() -> None:
    a, b = correlated_values(100, 1.0)
    first, again, other = (
        rank_statistics.spearman_interval(a, b, np.random.default_rng(seed), 50) for seed in (0, 0, 1)
    )
    assert first == again != other
    assert rank_statistics.spearman_interval(np.ones(5), a[:5], np.random.default_rng(0), 50) is None


def test_bucket_losses_are_means_of_equal_shares_by_descending_score() -> None:
    losses = rank_statistics.bucket_losses(RISING, RISING, IDS, 20)
    assert losses.tolist() == [194.5 - 10 * i for i in range(20)]
    assert rank_statistics.bucket_losses(RISING[:3], RISING[:3], IDS[:3], 20).tolist() == [2, 1, 0]


def test_overlap_is_a_share_of_the_first_query() -> None:
    assert rank_statistics.overlap(np.array([1, 2, 3, 4]), np.array([4, 3, 9])) == 0.5
    assert rank_statistics.overlap(np.array([1]), np.array([2])) == 0


def test_uncertainty_scores_are_those_of_the_strategies_with_their_names() -> None:
    rng = np.random.default_rng(0)
    probs, previous = (softmax(rng.normal(size=(50, 4)) * 3) for _ in range(2))
    pool = PoolChunk(np.arange(50), Outputs(np.log(probs), probs), {"previous": Outputs(np.log(previous), previous)})
    kinds = {kind.model_fields["name"].default: kind for kind in members("strategies")}
    for name, scores in rank_statistics.uncertainty_scores(probs).items():
        assert scores.tolist() == kinds[name]().scores(pool, np.random.default_rng(5)).tolist()
    assert Cod().scores(pool, rng).tolist() == discrepancy(probs, previous).tolist()
