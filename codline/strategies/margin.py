"""Margin (Scheffer et al., 2001): the smallest gap between the two likeliest classes."""

from typing import Literal

import numpy as np

from codline.data.dense_outputs import per_image
from codline.strategies.base import Pool, Strategy


class Margin(Strategy):
    name: Literal["margin"] = "margin"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        ordered = np.partition(pool.probs_NC, -2, axis=1)
        return per_image(ordered[:, -2] - ordered[:, -1])
