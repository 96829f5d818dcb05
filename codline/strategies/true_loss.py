"""True loss: oracle baseline that uses the true labels; an upper reference, for simulated campaigns only."""

from typing import ClassVar, Literal

import numpy as np

from codline.learning.image_losses import image_losses
from codline.strategies.base import PoolChunk, Strategy


class TrueLoss(Strategy):
    """Cross-entropy of this cycle's model (segmentation: mean over labeled pixels). Needs `score.truth: oracle`."""

    uses_true_labels: ClassVar[bool] = True
    name: Literal["true_loss"] = "true_loss"

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        assert chunk.true_labels is not None
        return image_losses(chunk.outputs.logits_NC, chunk.true_labels)
