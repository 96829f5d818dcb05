"""Temporal output discrepancy (Huang et al., 2021, definition 1): the images whose outputs moved most in the last steps of this training."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import Other, Pool, Strategy


class Tod(Strategy):
    """No last cycle is needed. `steps` must be among train.snapshots."""

    name: Literal["tod"] = "tod"
    outputs: Literal["probs", "logits"] = "probs"
    steps: PositiveInt = 100

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        return frozenset({self.steps})

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return discrepancy(pool.outputs.of(self.outputs), pool.others[self.steps].of(self.outputs))
