"""Softmax sampling (Kirsch et al., 2023): without replacement, with probabilities proportional to exp(beta * score)."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.pickers.base import CandidateChunk, Picker


class Softmax(Picker):
    """Sampled by the Gumbel trick: the highest values of beta * score + Gumbel noise.

    Only differences between scores matter, so `beta` depends on the strategy's scale.
    """

    name: Literal["softmax"] = "softmax"
    beta: float = Field(default=1.0, gt=0)

    def sort_keys(self, chunk: CandidateChunk, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (self.beta * chunk.scores + rng.gumbel(size=len(chunk.ids)),)
