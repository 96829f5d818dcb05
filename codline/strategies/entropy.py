"""Entropy (Shannon; Settles, 2009): the images whose predicted class distribution has the highest entropy."""

from typing import Literal

import numpy as np

from codline.acquisition import uncertainty
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class Entropy(Strategy):
    name: Literal["entropy"] = "entropy"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return mean_per_image(uncertainty.entropy(chunk.probs_NC))
