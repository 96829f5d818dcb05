"""Disagreement of a committee of models on the class of images or pixels."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from codline.acquisition.uncertainty import entropy, mean_and_entropy

Measure = Literal["variation_ratio", "vote_entropy"]
TIE_WEIGHT = (
    1e-6  # of what breaks ties, at most ln 1000: less than the gap between any two vote results of nine members
)


def disagreement(committee_probs: Sequence[np.ndarray], by: Measure) -> np.ndarray:
    """variation_ratio: share of the votes that are not for the winner.

    vote_entropy: entropy of the votes (Dagan and Engelson, 1995).
    """
    vote_shares_NC, _ = mean_and_entropy(votes(probs_NC) for probs_NC in committee_probs)
    ratio: np.ndarray = 1 - vote_shares_NC.max(axis=1)
    return entropy(vote_shares_NC) if by == "vote_entropy" else ratio


def break_ties(disagreements: np.ndarray, committee_probs: Sequence[np.ndarray]) -> np.ndarray:
    """Votes are few, so many images tie; among those, the mean entropy of the members' predictions decides."""
    return disagreements + TIE_WEIGHT * mean_and_entropy(committee_probs)[1]


def votes(probs_NC: np.ndarray) -> np.ndarray:
    """One vote per image or pixel for the most probable class, split evenly if there are several."""
    is_winner = probs_NC == probs_NC.max(axis=1, keepdims=True)
    shares: np.ndarray = is_winner / is_winner.sum(axis=1, keepdims=True)
    return shares
