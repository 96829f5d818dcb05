"""MC dropout, or DBAL (Gal et al., 2017): the images with the highest entropy of the mean over dropout passes."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.acquisition.uncertainty import entropy, mean_and_entropy
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class McDropout(Strategy):
    """Entropy of the mean prediction over `passes` (the paper's max entropy). Dropout is applied as in `bald`."""

    name: Literal["mc_dropout"] = "mc_dropout"
    passes: PositiveInt = 25

    def dropout_passes(self) -> tuple[int, float | None]:
        return self.passes, None

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        mean, _ = mean_and_entropy(chunk.dropout_probs)
        return mean_per_image(entropy(mean))
