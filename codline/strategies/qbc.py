"""Query by committee (Seung et al., 1992): the images on whose class independently trained models disagree most."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.acquisition.disagreement import TIE_WEIGHT, Measure, break_ties, disagreement
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, ReferenceName, Strategy


class Qbc(Strategy):
    """The committee is this cycle's model and `members` more, which train.committee trains: initial weights and batches
    of their own, the same labels.

    The defaults are those of TorchAL: three models, variation ratio. Votes are few, so many images tie; among those the
    members' mean entropy decides (ties: entropy), or chance, as in TorchAL, which leaves it to the order of a sort.
    """

    name: Literal["qbc"] = "qbc"
    by: Measure = "variation_ratio"
    members: PositiveInt = 2
    ties: Literal["entropy", "random"] = "entropy"

    def member_names(self) -> list[str]:
        return [f"member.{number}" for number in range(1, self.members + 1)]

    def reference_models(self, first_cycle: bool) -> frozenset[ReferenceName]:
        return frozenset(self.member_names())

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        committee = [chunk.probs_NC, *(chunk.references[name].probs_NC for name in self.member_names())]
        disagreements = disagreement(committee, self.by)
        if self.ties == "entropy":
            return mean_per_image(break_ties(disagreements, committee))
        scores: np.ndarray = mean_per_image(disagreements) + TIE_WEIGHT * rng.random(len(chunk.ids))
        return scores
