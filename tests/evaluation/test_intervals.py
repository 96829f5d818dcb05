"""Intervals agree with scipy, and cover the true value as often as they claim."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from codline.evaluation import intervals
from codline.evaluation.intervals import bootstrap_mean_iou, mean_ious, wilson_interval


@given(st.integers(1, 100_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_wilson_interval_is_that_of_scipy(counts: tuple[int, int]) -> None:
    expected = stats.binomtest(*counts).proportion_ci(0.95, method="wilson")
    low, high = wilson_interval(*counts)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def random_counts(rng: np.random.Generator, images: int) -> np.ndarray:
    """(3, images, 4): correct, true and predicted pixels; the last class is rare."""
    true = rng.integers(50, 500, (images, 4)) * (rng.random((images, 4)) < [1, 1, 0.8, 0.05])
    hits = rng.binomial(true, rng.beta(8, 2, (images, 4)))
    return np.stack([hits, true, hits + rng.integers(0, 100, (images, 4))])


def test_bootstrap_of_mean_iou_is_that_of_scipy_but_for_its_random_numbers() -> None:
    counts = random_counts(np.random.default_rng(0), 80)

    def statistic(rows: np.ndarray) -> float:
        return float(mean_ious(*counts[:, rows].sum(axis=1, keepdims=True))[0])

    expected = stats.bootstrap(
        (np.arange(80),), statistic, vectorized=False, n_resamples=4000, method="percentile", rng=1
    ).confidence_interval
    width = expected.high - expected.low
    assert bootstrap_mean_iou(*counts) == pytest.approx((expected.low, expected.high), abs=0.1 * width)


def test_bootstrap_gives_the_same_interval_however_many_resamples_are_held_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = random_counts(np.random.default_rng(1), 30)
    at_once = bootstrap_mean_iou(*counts)
    monkeypatch.setattr(intervals, "MAX_DRAWN", 100)  # three resamples at a time
    assert bootstrap_mean_iou(*counts) == at_once
    assert bootstrap_mean_iou(*counts[:, :1]) == (mean_ious(*counts[:, :1])[0],) * 2  # a single image
