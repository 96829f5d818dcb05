"""Power sampling (Kirsch et al., 2023): drawn without replacement, with chances that grow as the score to the power of `beta`."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from codline.pickers.base import Candidates, Picker


class Power(Picker):
    """The highest of log(score) + Gumbel noise / beta, which is such a draw. A score of zero is drawn only when nothing else is left, then at random.

    Differs from the paper, which knows no negative scores: where there are any, all are measured from the smallest, so that any strategy can be wrapped.
    """

    looks_at_least: ClassVar[bool] = True

    name: Literal["power"] = "power"
    beta: float = Field(default=1.0, gt=0)

    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        noise = rng.gumbel(size=len(candidates.ids))
        positive = candidates.scores - min(candidates.least, 0)
        with np.errstate(divide="ignore"):
            return self.beta * np.log(positive) + noise, noise
