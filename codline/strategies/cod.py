"""Cyclic output discrepancy (Huang et al., 2021): the images whose outputs moved most since the last cycle's model."""

from typing import ClassVar, Literal

import numpy as np

from codline.discrepancy import discrepancy
from codline.strategies.base import Pool, Strategy


class Cod(Strategy):
    """In the first cycle the other model is the untrained one.

    Its outputs are nearly uniform, so there the largest discrepancy marks the images the model is surest of: `largest` is the paper's
    rule, `smallest` the direction that the authors' code takes, `random` abstains.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"probs", "previous"})
    name: Literal["cod"] = "cod"
    first_cycle: Literal["largest", "smallest", "random"] = "smallest"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        if pool.first_cycle and self.first_cycle == "random":
            return rng.random(len(pool.ids))
        moved = discrepancy(pool.probs_NC, pool.previous_NC)
        return -moved if pool.first_cycle and self.first_cycle == "smallest" else moved
