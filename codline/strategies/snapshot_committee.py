"""Query by committee without further training: the committee is the model and its own snapshots."""

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from codline.acquisition.disagreement import Measure, break_ties, disagreement
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, ReferenceName, Strategy


class SnapshotCommittee(Strategy):
    """As `qbc`, with this cycle's model and its snapshots `members` steps before the end (in train.snapshots).

    They cost a forward pass each and no training, but disagree less than models that are trained independently.
    """

    name: Literal["snapshot_committee"] = "snapshot_committee"
    by: Measure = "vote_entropy"
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
        return mean_per_image(break_ties(disagreement(committee, self.by), committee))
