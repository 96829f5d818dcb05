"""Cyclic output discrepancy (Huang et al., 2021): the images whose outputs changed most since the previous cycle."""

from typing import Literal

import numpy as np

from codline.acquisition.cod_rules import CodRules
from codline.strategies.base import PoolChunk, Strategy


class Cod(CodRules, Strategy):
    """codline/acquisition/cod_rules.py describes the parameters."""

    name: Literal["cod"] = "cod"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        reference = self.reference_model(chunk.first_cycle)
        before = None if reference is None else chunk.references[reference].values(self.outputs)
        return self.cod_scores(chunk.outputs.values(self.outputs), before, chunk.first_cycle, rng)
