"""Random: uniform scores. The baseline that every other strategy has to beat."""

from typing import Literal

import numpy as np

from codline.strategies.base import PoolChunk, Strategy


class Random(Strategy):
    name: Literal["random"] = "random"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return rng.random(len(chunk.ids))
