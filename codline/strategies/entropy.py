"""Entropy (Shannon; Settles, 2009): the images whose predicted classes are most evenly spread."""

from typing import Literal

import numpy as np
from scipy.special import entr

from codline.data.dense_outputs import per_image
from codline.strategies.base import Pool, Strategy


class Entropy(Strategy):
    name: Literal["entropy"] = "entropy"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return per_image(entr(pool.probs_NC).sum(axis=1))
