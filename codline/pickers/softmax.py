"""Softmax sampling (Kirsch et al., 2023): drawn without replacement, with chances that grow as the exponential of `beta` times the score."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.pickers.base import Candidates, Picker


class Softmax(Picker):
    """The highest of score + Gumbel noise / beta, which is such a draw. Only differences of scores count, so `beta` is in the strategy's own unit."""

    name: Literal["softmax"] = "softmax"
    beta: float = Field(default=1.0, gt=0)

    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (self.beta * candidates.scores + rng.gumbel(size=len(candidates.ids)),)
