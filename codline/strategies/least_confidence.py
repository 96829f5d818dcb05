"""Least confidence (Lewis and Gale, 1994): the images whose most probable class has the lowest probability."""

from typing import Literal

import numpy as np

from codline.acquisition import uncertainty
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class LeastConfidence(Strategy):
    name: Literal["least_confidence"] = "least_confidence"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return mean_per_image(uncertainty.least_confidence(chunk.probs_NC))
