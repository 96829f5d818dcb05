"""Cyclic output discrepancy (Huang et al., 2021): the images whose outputs moved most since the last cycle's model."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.discrepancy import discrepancy
from codline.strategies.base import Other, Pool, Strategy


class Cod(Strategy):
    """The first cycle has no last one. There, `first_cycle` says what to do:

    largest: most moved since the untrained weights, the paper's words; their outputs are nearly uniform, so these are the images the model is surest of.
    smallest: least moved since the untrained weights: those it is least sure of.
    independent: least moved, seen from another untrained network, as in the authors' code.
    snapshot: most moved during the last `steps` steps of this training, which must be among train.snapshots.
    random: abstain.
    """

    name: Literal["cod"] = "cod"
    outputs: Literal["probs", "logits"] = "probs"
    first_cycle: Literal["largest", "smallest", "independent", "snapshot", "random"] = "smallest"
    steps: PositiveInt = 100

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        other = self.other(first_cycle)
        return frozenset() if other is None else frozenset({other})

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        other = self.other(pool.first_cycle)
        if other is None:
            return rng.random(len(pool.ids))
        moved = discrepancy(pool.outputs.of(self.outputs), pool.others[other].of(self.outputs))
        return -moved if pool.first_cycle and self.first_cycle in ("smallest", "independent") else moved

    def other(self, first_cycle: bool) -> Other | None:
        if not first_cycle:
            return "previous"
        rules: dict[str, Other | None] = {"independent": "independent", "snapshot": self.steps, "random": None}
        return rules.get(self.first_cycle, "previous")
