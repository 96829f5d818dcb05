"""What several passes or members say of the same images, summed up as they go by: memory does not grow with how many there are."""

from collections.abc import Iterable

import numpy as np
from scipy.special import entr


def entropy(probs_NC: np.ndarray) -> np.ndarray:
    """In nats, over the classes; of dense ones, one per pixel."""
    found: np.ndarray = entr(probs_NC).sum(axis=1)
    return found


def summed_up(samples: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the probabilities, and the mean of their entropies."""
    total, spread, count = np.zeros(()), np.zeros(()), 0
    for probs_NC in samples:
        total, spread, count = total + probs_NC, spread + entropy(probs_NC), count + 1
    assert count, "no pass was asked for"
    return total / count, spread / count
