"""Temporal output discrepancy (Huang et al., 2021): the images whose outputs changed most late in training."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import PoolChunk, ReferenceName, Strategy


class Tod(Strategy):
    """Definition 1 of the paper. It needs no previous cycle. `steps` must be in train.snapshots."""

    name: Literal["tod"] = "tod"
    outputs: Literal["probs", "logits"] = "probs"
    steps: PositiveInt = 100

    def reference_models(self, first_cycle: bool) -> frozenset[ReferenceName]:
        return frozenset({self.steps})

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return discrepancy(chunk.outputs.values(self.outputs), chunk.references[self.steps].values(self.outputs))
