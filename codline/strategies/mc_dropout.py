"""MC-Dropout, or DBAL (Gal, Islam and Ghahramani, 2017): the images whose predicted classes, averaged over passes with dropout, are most evenly spread."""

from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from codline.acquisition.uncertainty import entropy, summed_up
from codline.data.dense_outputs import per_image
from codline.strategies.base import Pool, Strategy


class McDropout(Strategy):
    """The entropy of the mean over `passes` (the paper's maximum entropy).

    Dropout is laid on the features, before the head: our networks have none of their own, and the body runs once instead of `passes` times. One mask is
    drawn for each pass and is the same for all images (consistent dropout): a pass is one function, and scores do not depend on batches. Batch norm is in
    eval mode for the same reason: with the statistics of a batch, an image's score would depend on its neighbours.
    Differs from the paper: it trains with the dropout that it samples; we train without.
    """

    name: Literal["mc_dropout"] = "mc_dropout"
    passes: PositiveInt = 25
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def stochastic(self) -> tuple[int, float]:
        return self.passes, self.dropout

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        mean, _ = summed_up(pool.samples)
        return per_image(entropy(mean))
