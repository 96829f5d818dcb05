"""Entropy, and means over several predictions of the same images in memory that does not grow with their number."""

from collections.abc import Iterable

import numpy as np


def entropy(probs_NC: np.ndarray) -> np.ndarray:
    """Entropy over the classes, in nats: per image, or per pixel for segmentation."""
    from scipy.special import entr  # here, because strategies are also imported to check params.yaml

    nats: np.ndarray = entr(probs_NC).sum(axis=1)
    return nats


def mutual_information(predictions: Iterable[np.ndarray]) -> np.ndarray:
    """Of the class and the predictor: entropy of the mean prediction minus mean entropy, in nats, at least 0."""
    mean, mean_entropy = mean_and_entropy(predictions)
    # Rounding can make the difference negative.
    information: np.ndarray = np.maximum(entropy(mean) - mean_entropy, 0)
    return information


def mean_and_entropy(predictions: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the probabilities, and mean of their entropies."""
    probs_sum, entropy_sum, count = np.zeros(()), np.zeros(()), 0
    for probs_NC in predictions:
        probs_sum, entropy_sum, count = probs_sum + probs_NC, entropy_sum + entropy(probs_NC), count + 1
    assert count, "expected at least one prediction"
    return probs_sum / count, entropy_sum / count
