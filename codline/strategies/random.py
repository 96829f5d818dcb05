"""Random: every image is wanted alike. The baseline that everything has to beat."""

from typing import Literal

import numpy as np

from codline.strategies.base import Pool, Strategy


class Random(Strategy):
    name: Literal["random"] = "random"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return rng.random(len(pool.ids))
