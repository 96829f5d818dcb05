"""BALD (Houlsby et al., 2011; Gal, Islam and Ghahramani, 2017): the images that passes with dropout, each sure of itself, disagree on."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.acquisition.uncertainty import entropy, summed_up
from codline.data.dense_outputs import per_image
from codline.strategies.base import Pool, Strategy


class Bald(Strategy):
    """The mutual information of class and weights: the entropy of the mean over `passes`, less the mean of the entropies; never below zero, as rounding may be.

    Dropout is laid on the features, before the head: our networks have none of their own, and the body runs once instead of `passes` times. One mask is
    drawn for each pass and is the same for all images (consistent dropout): a pass is one function, and scores do not depend on batches. Batch norm is in
    eval mode for the same reason: with the statistics of a batch, an image's score would depend on its neighbours.
    Differs from the papers: Houlsby et al. have a Gaussian process; Gal et al. train with the dropout that they sample, we train without.
    """

    name: Literal["bald"] = "bald"
    passes: int = Field(default=25, ge=2)  # a single pass disagrees with nobody
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def stochastic(self) -> tuple[int, float]:
        return self.passes, self.dropout

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        mean, spread = summed_up(pool.samples)
        return per_image(np.maximum(entropy(mean) - spread, 0))
