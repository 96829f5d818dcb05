"""Random: every image is wanted alike. The baseline that everything has to beat."""

from typing import ClassVar, Literal

import numpy as np

from codline.strategies.base import Pool, Strategy


class Random(Strategy):
    needs: ClassVar[frozenset[str]] = frozenset()
    name: Literal["random"] = "random"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return rng.random(len(pool.ids))
