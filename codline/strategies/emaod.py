"""EMA output discrepancy (Huang et al., 2021): the images whose outputs differ most from the averaged model's."""

from typing import Literal

import numpy as np

from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import PoolChunk, ReferenceName, Strategy


class Emaod(Strategy):
    """The objective `ema` keeps the average, also with its unsupervised loss off (`{name: ema, weight: 0}`)."""

    name: Literal["emaod"] = "emaod"
    outputs: Literal["probs", "logits"] = "probs"

    def reference_models(self, first_cycle: bool) -> frozenset[ReferenceName]:
        return frozenset({"average"})

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return discrepancy(chunk.outputs.values(self.outputs), chunk.references["average"].values(self.outputs))
