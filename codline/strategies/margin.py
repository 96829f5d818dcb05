"""Margin (Scheffer et al., 2001): the images with the smallest gap between their two most probable classes."""

from typing import Literal

import numpy as np

from codline.acquisition import uncertainty
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class Margin(Strategy):
    name: Literal["margin"] = "margin"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return mean_per_image(uncertainty.margin(chunk.probs_NC))
