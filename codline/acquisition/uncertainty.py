"""Uncertainty of predictions, and means over several of them in memory that does not grow with their number."""

from collections.abc import Iterable

import numpy as np


def entropy(probs_NC: np.ndarray) -> np.ndarray:
    """Entropy over the classes, in nats: per image, or per pixel for segmentation."""
    from scipy.special import entr  # here, because strategies are also imported to check params.yaml

    nats: np.ndarray = entr(probs_NC).sum(axis=1)
    return nats


def margin(probs_NC: np.ndarray) -> np.ndarray:
    """Second largest minus largest probability, at most 0: per image, or per pixel for segmentation."""
    ordered = np.partition(probs_NC, -2, axis=1)
    gaps: np.ndarray = ordered[:, -2] - ordered[:, -1]
    return gaps


def least_confidence(probs_NC: np.ndarray) -> np.ndarray:
    """1 minus the largest probability: per image, or per pixel for segmentation."""
    doubts: np.ndarray = 1 - probs_NC.max(axis=1)
    return doubts


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
