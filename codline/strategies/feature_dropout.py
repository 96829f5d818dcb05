"""Feature dropout: MC dropout or BALD for a network that was trained without dropout."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.acquisition.uncertainty import entropy, mean_and_entropy, mutual_information
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class FeatureDropout(Strategy):
    """Drops features before the head, as `mc_dropout` (by: entropy) and `bald` (by: mutual_information) do.

    Since the network has not learned to do without them, passes are not samples of a posterior, as in the papers.
    """

    name: Literal["feature_dropout"] = "feature_dropout"
    by: Literal["entropy", "mutual_information"] = "entropy"
    passes: int = Field(default=25, ge=2)
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def dropout_passes(self) -> tuple[int, float | None]:
        return self.passes, self.dropout

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        if self.by == "mutual_information":
            return mean_per_image(mutual_information(chunk.dropout_probs))
        mean, _ = mean_and_entropy(chunk.dropout_probs)
        return mean_per_image(entropy(mean))
