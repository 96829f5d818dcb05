"""Cyclic output discrepancy (Huang et al., 2021): the images whose outputs changed most since the previous cycle."""

from typing import Literal

import numpy as np

from codline.acquisition.cod_rules import CodRules
from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import PoolChunk, Strategy


class Cod(CodRules, Strategy):
    """codline/acquisition/cod_rules.py describes the parameters."""

    name: Literal["cod"] = "cod"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        reference = self.reference_model(chunk.first_cycle)
        if reference is None:
            return rng.random(len(chunk.ids))
        before, now = chunk.references[reference].values(self.outputs), chunk.outputs.values(self.outputs)
        return self.score_discrepancies(discrepancy(now, before), chunk.first_cycle)
