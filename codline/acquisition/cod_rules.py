"""The parameters of cyclic output discrepancy, and its rule for the first cycle: for all strategies that start from it."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.core.params import Section


class Cyclic(Section):
    """The first cycle has no last one. There, `first_cycle` says what to do:

    largest: most moved since the untrained weights, the paper's words; their outputs are nearly uniform, so these are the images the model is surest of.
    smallest: least moved since the untrained weights: those it is least sure of.
    independent: least moved, seen from another untrained network, as in the authors' code.
    snapshot: most moved during the last `steps` steps of this training, which must be among train.snapshots.
    random: abstain.
    """

    name: str
    outputs: Literal["probs", "logits"] = "probs"
    first_cycle: Literal["largest", "smallest", "independent", "snapshot", "random"] = "smallest"
    steps: PositiveInt = 100

    def needs(self, first_cycle: bool) -> frozenset[str | int]:
        other = self.other(first_cycle)
        return frozenset() if other is None else frozenset({other})

    def other(self, first_cycle: bool) -> str | int | None:
        """The model whose outputs are compared with this cycle's; none: abstain."""
        if not first_cycle:
            return "previous"
        rules: dict[str, str | int | None] = {"independent": "independent", "snapshot": self.steps, "random": None}
        return rules.get(self.first_cycle, "previous")

    def wanted(self, moved: np.ndarray, first_cycle: bool) -> np.ndarray:
        return -moved if first_cycle and self.first_cycle in ("smallest", "independent") else moved
