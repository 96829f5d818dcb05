"""Query by committee (Seung et al., 1992): the images on whose class a committee of models disagrees most."""

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from codline.acquisition.uncertainty import entropy, mean_and_entropy
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, ReferenceName, Strategy

TIE_WEIGHT = 1e-6  # of the mean entropy, in nats: less than the gap between any two vote results of nine members


class Qbc(Strategy):
    """The committee is this cycle's model and its snapshots `members` steps before the end (in train.snapshots).

    vote_entropy: entropy of the votes (Dagan and Engelson, 1995).
    variation_ratio: share of the votes that are not for the winner.
    Votes are few, so many images tie; among those, the mean entropy of the members' predictions decides.
    Differs from the paper: snapshots of one training, not separately trained networks. They cost a forward pass each
    and no training, but disagree less.
    """

    name: Literal["qbc"] = "qbc"
    by: Literal["vote_entropy", "variation_ratio"] = "vote_entropy"
    members: list[PositiveInt] = Field(default=[100, 200, 300], min_length=1)

    @field_validator("members")
    @classmethod
    def check_distinct(cls, members: list[int]) -> list[int]:
        if len(set(members)) < len(members):
            raise ValueError("every member once")
        return members

    def reference_models(self, first_cycle: bool) -> frozenset[ReferenceName]:
        return frozenset(self.members)

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        committee = [chunk.probs_NC, *(chunk.references[steps].probs_NC for steps in self.members)]
        vote_shares_NC, _ = mean_and_entropy(votes(probs_NC) for probs_NC in committee)
        _, members_entropy = mean_and_entropy(committee)
        is_entropy = self.by == "vote_entropy"
        disagreement = entropy(vote_shares_NC) if is_entropy else 1 - vote_shares_NC.max(axis=1)
        return mean_per_image(disagreement + TIE_WEIGHT * members_entropy)


def votes(probs_NC: np.ndarray) -> np.ndarray:
    """One vote per image or pixel for the most probable class, split evenly if there are several."""
    is_winner = probs_NC == probs_NC.max(axis=1, keepdims=True)
    shares: np.ndarray = is_winner / is_winner.sum(axis=1, keepdims=True)
    return shares
