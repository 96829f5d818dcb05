"""Cyclic output discrepancy (Huang et al., 2021): the images whose outputs moved most since the last cycle's model."""

from typing import Literal

import numpy as np

from codline.acquisition.cod_rules import Cyclic
from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import Pool, Strategy


class Cod(Cyclic, Strategy):
    """What it does in the first cycle, which has no last one, is in codline/cyclic.py."""

    name: Literal["cod"] = "cod"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        other = self.other(pool.first_cycle)
        if other is None:
            return rng.random(len(pool.ids))
        return self.wanted(
            discrepancy(pool.outputs.of(self.outputs), pool.others[other].of(self.outputs)), pool.first_cycle
        )
