"""Learning loss (Yoo and Kweon, 2019): the images with the largest predicted loss."""

from typing import ClassVar, Literal

import numpy as np

from codline.strategies.base import PoolChunk, Strategy


class Ll4al(Strategy):
    """Yoo, Kweon: Learning Loss for Active Learning (CVPR 2019).

    The objective of the same name trains the loss predictor; score.subset is the paper's random subset of the pool.
    """

    uses_predicted_losses: ClassVar[bool] = True
    name: Literal["ll4al"] = "ll4al"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        assert chunk.predicted_losses is not None
        return chunk.predicted_losses.astype(np.float64)
