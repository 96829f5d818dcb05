"""Output discrepancy to the moving average of the weights that the objective `ema` keeps (Huang et al., 2021, as a strategy)."""

from typing import Literal

import numpy as np

from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import Other, Pool, Strategy


class Emaod(Strategy):
    """Without the unsupervised loss, `objective: {name: ema, weight: 0}` keeps the average all the same."""

    name: Literal["emaod"] = "emaod"
    outputs: Literal["probs", "logits"] = "probs"

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        return frozenset({"average"})

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return discrepancy(pool.outputs.of(self.outputs), pool.others["average"].of(self.outputs))
