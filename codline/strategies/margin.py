"""Margin (Scheffer et al., 2001): the smallest gap between the two likeliest classes."""

from typing import Literal

import numpy as np

from codline.strategies.base import Pool, Strategy


class Margin(Strategy):
    name: Literal["margin"] = "margin"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        second, first = np.partition(pool.probs_NC, -2, axis=1)[:, -2:].T
        gap: np.ndarray = second - first
        return gap
