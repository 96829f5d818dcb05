"""95% intervals of test metrics, which account for the number of test images."""

import math

import numpy as np

from codline.data.random_streams import generator

CONFIDENCE_LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054  # of (1 + CONFIDENCE_LEVEL) / 2; importing scipy.stats takes half a second
RESAMPLES = 1000
MAX_DRAWN = 2**20  # numbers that the bootstrap holds at once


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of a share. Unlike the normal one it stays within 0 and 1 and suits small samples."""
    share, z = successes / trials, NORMAL_QUANTILE
    center = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    return max(0.0, min(share, center - half)), min(1.0, max(share, center + half))


def bootstrap_mean_iou(hits_NC: np.ndarray, true_NC: np.ndarray, predicted_NC: np.ndarray) -> tuple[float, float]:
    """Percentile bootstrap of the mean IoU over images, whose pixels are not independent.

    For each of N images and C classes: correctly classified pixels, pixels of the class, pixels predicted as it.
    The random numbers are always the same. Memory does not grow with the number of resamples.
    """
    images, rng = len(hits_NC), generator(0, "evaluate", "bootstrap")
    chunk = max(1, MAX_DRAWN // images)
    values: list[np.ndarray] = []
    for first in range(0, RESAMPLES, chunk):
        size = min(chunk, RESAMPLES - first)
        drawn = rng.integers(images, size=(size, images)) + images * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * images).reshape(size, images).astype(np.float64)
        values.append(mean_ious(*(weights @ counts for counts in (hits_NC, true_NC, predicted_NC))))
    low, high = np.quantile(np.concatenate(values), [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)


def mean_ious(hits_RC: np.ndarray, true_RC: np.ndarray, predicted_RC: np.ndarray) -> np.ndarray:
    """Mean IoU of each row over the classes that have pixels in it; 0 for a row without labeled pixels."""
    is_present = true_RC > 0
    ious = np.where(is_present, hits_RC / np.maximum(true_RC + predicted_RC - hits_RC, 1), 0.0)
    means: np.ndarray = ious.sum(axis=1) / np.maximum(is_present.sum(axis=1), 1)
    return means
