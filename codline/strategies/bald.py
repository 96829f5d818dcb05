"""BALD (Houlsby et al., 2011; Gal et al., 2017): the images on which dropout passes confidently disagree."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.acquisition.uncertainty import mutual_information
from codline.data.dense_outputs import mean_per_image
from codline.strategies.base import PoolChunk, Strategy


class Bald(Strategy):
    """Mutual information of class and weights, over `passes` with the network's dropout layer (prepare.model.dropout).

    The layer is before the head, so that the body runs once instead of `passes` times. Each pass has one mask for all
    images (consistent dropout), and batch norm is in eval mode, so that scores do not depend on how images are batched.
    Houlsby et al. use a Gaussian process; Gal et al. also have dropout between convolutions.
    """

    name: Literal["bald"] = "bald"
    passes: int = Field(default=25, ge=2)  # a single pass cannot disagree

    def dropout_passes(self) -> tuple[int, float | None]:
        return self.passes, None

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        return mean_per_image(mutual_information(chunk.dropout_probs))
