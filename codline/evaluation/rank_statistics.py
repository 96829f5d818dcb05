"""How well scores rank images by their true loss.

Shapes: N images, C classes. Arrays with one value per image are aligned with `ids`.
"""

from typing import Any

import numpy as np

from codline.acquisition import uncertainty
from codline.data.dense_outputs import mean_per_image

PERCENT = np.arange(1, 101)
CONFIDENCE_LEVEL = 0.95  # of the bootstrap interval


RANKING_KEYS = ("spearman", "spearman_low", "spearman_high", "mean_score", "bucket_losses", "capture", "capture_gain")


def ranking_quality(
    scores: np.ndarray | None,
    losses: np.ndarray,
    ids: np.ndarray,
    rng: np.random.Generator,
    *,
    resamples: int,
    buckets: int,
) -> dict[str, Any]:
    """Rank correlation of scores and losses with its bootstrap interval, bucket losses and capture curve.

    Without scores, as of strategies that select whole queries and do not rank the pool, every value is None.
    """
    if scores is None:
        return dict.fromkeys(RANKING_KEYS)
    low, high = spearman_interval(scores, losses, rng, resamples) or (None, None)
    captured = capture_curve(scores, losses, ids)
    return {
        "spearman": spearman(scores, losses),
        "spearman_low": low,
        "spearman_high": high,
        "mean_score": float(scores.mean()),
        "bucket_losses": bucket_losses(scores, losses, ids, buckets).tolist(),
        "capture": captured.tolist(),
        "capture_gain": capture_gain(captured),
    }


def descending_order(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Indices that sort by descending value, ties by ascending id: the order in which `select` takes a query."""
    return np.lexsort((ids, -values))


def bucket_losses(scores: np.ndarray, losses: np.ndarray, ids: np.ndarray, buckets: int) -> np.ndarray:
    """Mean loss in each of `buckets` buckets of equal size, by descending score."""
    rows_of_buckets = np.array_split(descending_order(scores, ids), min(buckets, len(ids)))
    return np.array([losses[rows].mean() for rows in rows_of_buckets])


def capture_curve(scores: np.ndarray, losses: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """For k = 1..100: the share of the k% of images with the highest losses that is among the k% highest scores."""
    ranks = np.empty((2, len(ids)), np.int64)
    for row, values in zip(ranks, (scores, losses), strict=True):
        row[descending_order(values, ids)] = np.arange(len(ids))
    tops = -(-PERCENT * len(ids) // 100)  # number of images in k%, rounded up
    # An image is in both tops exactly if the worse of its two ranks is.
    shares: np.ndarray = np.searchsorted(np.sort(ranks.max(axis=0)), tops) / tops
    return shares


def capture_gain(captured: np.ndarray) -> float:
    """Area between a capture curve and chance, relative to that of the ideal curve: 1 is ideal, 0 is chance."""
    chance = PERCENT / 100
    return float((captured - chance).sum() / (1 - chance).sum())


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation, ties at their mean rank; None if either is constant."""
    return rank_correlation(dense_ranks(a), dense_ranks(b))


def spearman_interval(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator, resamples: int
) -> tuple[float, float] | None:
    """Percentile bootstrap over images, each resample ranked anew; constant resamples are skipped."""
    a, b = dense_ranks(a), dense_ranks(b)
    draws = (rng.integers(len(a), size=len(a)) for _ in range(resamples))
    correlations = [value for draw in draws if (value := rank_correlation(a[draw], b[draw])) is not None]
    if not correlations:
        return None
    low, high = np.quantile(correlations, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)


def dense_ranks(values: np.ndarray) -> np.ndarray:
    """Index of each value among the sorted distinct ones: resamples of it are ranked by counting, without sorting."""
    return np.unique(values, return_inverse=True)[1]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's correlation of two arrays of dense ranks."""
    if a.min() == a.max() or b.min() == b.max():
        return None
    return float(np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1])


def mean_ranks(dense: np.ndarray) -> np.ndarray:
    counts = np.bincount(dense)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[dense]
    return ranks


def overlap(ids: np.ndarray, others: np.ndarray) -> float:
    """Share of one query's ids that another query contains, too."""
    return float(np.isin(ids, others).mean())


def uncertainty_scores(probs_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of the strategies that need nothing but probabilities, by the strategies' names.

    Not imported from the strategies: DVC would then rerun `diagnose` when a strategy changes that is not in use.
    """
    return {
        "entropy": mean_per_image(uncertainty.entropy(probs_NC)),
        "margin": mean_per_image(uncertainty.margin(probs_NC)),
        "least_confidence": mean_per_image(uncertainty.least_confidence(probs_NC)),
    }
