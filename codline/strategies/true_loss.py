"""The true loss: a negative control that is told the answers, and shows what knowing them is worth. Simulated campaigns alone."""

from typing import ClassVar, Literal

import numpy as np

from codline.acquisition.image_losses import losses
from codline.strategies.base import Pool, Strategy


class TrueLoss(Strategy):
    """The cross-entropy of this cycle's model; of dense outputs the mean over the pixels that have a class. score.truth: oracle opens the answers to it."""

    truth: ClassVar[bool] = True
    name: Literal["true_loss"] = "true_loss"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        assert pool.truth is not None
        return losses(pool.outputs.logits_NC, pool.truth)
