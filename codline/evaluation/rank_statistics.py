"""Hindsight: how well scores foretold true losses. Shapes: N images, C classes; arrays of one value per image are aligned."""

from typing import Any

import numpy as np
from scipy.special import entr

from codline.data.dense_outputs import per_image

PERCENT = np.arange(1, 101)
LEVEL = 0.95  # of the bootstrap interval


def foretold(
    scores: np.ndarray, losses: np.ndarray, ids: np.ndarray, rng: np.random.Generator, resamples: int, buckets: int
) -> dict[str, Any]:
    """All that a score says of the losses."""
    low, high = spearman_interval(scores, losses, rng, resamples) or (None, None)
    captured = capture(scores, losses, ids)
    return {
        "spearman": spearman(scores, losses),
        "spearman_low": low,
        "spearman_high": high,
        "mean_score": float(scores.mean()),
        "mean_loss": float(losses.mean()),
        "bucket_losses": bucket_losses(scores, losses, ids, buckets).tolist(),
        "capture": captured.tolist(),
        "capture_gain": capture_gain(captured),
    }


def ranked(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Indices from the largest value to the smallest, ties to the smaller id: the order in which a query is taken."""
    return np.lexsort((ids, -values))


def bucket_losses(scores: np.ndarray, losses: np.ndarray, ids: np.ndarray, buckets: int) -> np.ndarray:
    """Mean loss in buckets of equal size, by descending score."""
    return np.array([losses[rows].mean() for rows in np.array_split(ranked(scores, ids), min(buckets, len(ids)))])


def capture(scores: np.ndarray, losses: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """For k = 1..100: of the k% with the highest losses, the share that is among the k% with the highest scores."""
    places = np.empty((2, len(ids)), np.int64)
    for row, values in zip(places, (scores, losses), strict=True):
        row[ranked(values, ids)] = np.arange(len(ids))
    tops = -(-PERCENT * len(ids) // 100)  # images in k%, rounded up
    shares: np.ndarray = (
        np.searchsorted(np.sort(places.max(axis=0)), tops) / tops
    )  # in both tops: both places are below it
    return shares


def capture_gain(captured: np.ndarray) -> float:
    """The area between the curve and the random line, as a share of the ideal's: 1 is ideal, 0 is chance."""
    chance = PERCENT / 100
    return float((captured - chance).sum() / (1 - chance).sum())


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation, ties at their mean rank; of constant values there is none."""
    return correlation(codes(a), codes(b))


def spearman_interval(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator, resamples: int
) -> tuple[float, float] | None:
    """Percentile bootstrap: images are drawn again with replacement and ranked anew. A draw of constant values says nothing."""
    a, b = codes(a), codes(b)
    draws = (rng.integers(len(a), size=len(a)) for _ in range(resamples))
    found = [value for draw in draws if (value := correlation(a[draw], b[draw])) is not None]
    if not found:
        return None
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def codes(values: np.ndarray) -> np.ndarray:
    """Each value's place among the distinct ones, so that ranking a resample needs no sorting."""
    return np.unique(values, return_inverse=True)[1]


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.min() == a.max() or b.min() == b.max():
        return None
    return float(np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1])


def mean_ranks(codes: np.ndarray) -> np.ndarray:
    counts = np.bincount(codes)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    return ranks


def overlap(ids: np.ndarray, others: np.ndarray) -> float:
    """The share of one query that is in another, too."""
    return float(np.isin(ids, others).mean())


def rivals(probs_NC: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of the strategies that need probabilities alone.

    Spelled out again, so that a campaign does not depend on the files of strategies that it does not use.
    """
    ordered = np.partition(probs_NC, -2, axis=1)
    return {
        "entropy": per_image(entr(probs_NC).sum(axis=1)),
        "margin": per_image(ordered[:, -2] - ordered[:, -1]),
        "least_confidence": per_image(1 - probs_NC.max(axis=1)),
    }
