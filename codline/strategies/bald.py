"""BALD (Houlsby et al., 2011; Gal et al., 2017): the images on which dropout passes confidently disagree."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.acquisition.uncertainty import entropy, mean_and_entropy
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class Bald(Strategy):
    """Mutual information of class and weights: entropy of the mean prediction minus mean entropy, at least 0.

    Dropout is applied to the features, before the head: our networks have no dropout layers, and the body runs once
    instead of `passes` times. Each pass has one mask for all images (consistent dropout), and batch norm is in eval
    mode, so that scores do not depend on how images are batched.
    Differs from the papers: Houlsby et al. use a Gaussian process; Gal et al. also train with dropout, we do not.
    """

    name: Literal["bald"] = "bald"
    passes: int = Field(default=25, ge=2)  # a single pass cannot disagree
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def dropout_passes(self) -> tuple[int, float]:
        return self.passes, self.dropout

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        mean, mean_entropy = mean_and_entropy(chunk.dropout_probs)
        # Rounding can make the difference negative.
        return mean_per_image(np.maximum(entropy(mean) - mean_entropy, 0))
