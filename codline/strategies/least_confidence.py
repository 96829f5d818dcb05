"""Least confidence (Lewis and Gale, 1994): the images whose likeliest class is least likely."""

from typing import Literal

import numpy as np

from codline.data.dense_outputs import per_image
from codline.strategies.base import Pool, Strategy


class LeastConfidence(Strategy):
    name: Literal["least_confidence"] = "least_confidence"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        return per_image(1 - pool.probs_NC.max(axis=1))
