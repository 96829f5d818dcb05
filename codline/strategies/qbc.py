"""Query by committee (Seung, Opper and Sompolinsky, 1992): the images on whose class a committee of models disagrees most."""

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from codline.acquisition.uncertainty import entropy, summed_up
from codline.data.dense_outputs import per_image
from codline.strategies.base import Other, Pool, Strategy

TIE = 1e-6  # what a nat of mean entropy counts: less than any two results of a vote of nine lie apart


class Qbc(Strategy):
    """The committee is this cycle's model and its own weights so many steps before the end of training, which must be among train.snapshots.

    vote_entropy: how evenly the votes are spread (Dagan and Engelson, 1995).
    variation_ratio: the share of the votes that the winner did not get.
    Votes are few, so many images tie; among those, the mean entropy of the members decides. A member torn between classes splits its vote.
    Differs from the paper, and from committees of networks trained apart: snapshots of one training cost a pass each and no training, and disagree less.
    """

    name: Literal["qbc"] = "qbc"
    by: Literal["vote_entropy", "variation_ratio"] = "vote_entropy"
    members: list[PositiveInt] = Field(default=[100, 200, 300], min_length=1)

    @field_validator("members")
    @classmethod
    def one_vote_each(cls, members: list[int]) -> list[int]:
        if len(set(members)) < len(members):
            raise ValueError("every member once")
        return members

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        return frozenset(self.members)

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        committee = [pool.probs_NC, *(pool.others[steps].probs_NC for steps in self.members)]
        shares_NC, _ = summed_up(votes(probs_NC) for probs_NC in committee)
        _, spread = summed_up(committee)
        disagreement = entropy(shares_NC) if self.by == "vote_entropy" else 1 - shares_NC.max(axis=1)
        return per_image(disagreement + TIE * spread)


def votes(probs_NC: np.ndarray) -> np.ndarray:
    """One vote for each image or pixel, to its likeliest class; several likeliest ones share it, so that the order of the classes does not matter."""
    likeliest = probs_NC == probs_NC.max(axis=1, keepdims=True)
    cast: np.ndarray = likeliest / likeliest.sum(axis=1, keepdims=True)
    return cast
