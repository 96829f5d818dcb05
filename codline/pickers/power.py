"""Power sampling (Kirsch et al., 2023): without replacement, with probabilities proportional to score ** beta."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from codline.pickers.base import CandidateChunk, Picker


class Power(Picker):
    """Sampled by the Gumbel trick: the highest values of beta * log(score) + Gumbel noise.

    Images with a score of zero come last, in random order. The paper has no negative scores: if there are any,
    the lowest is subtracted from all scores, so that the picker works with every strategy.
    """

    needs_lowest_score: ClassVar[bool] = True

    name: Literal["power"] = "power"
    beta: float = Field(default=1.0, gt=0)

    def sort_keys(self, chunk: CandidateChunk, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        noise = rng.gumbel(size=len(chunk.ids))
        positive = chunk.scores - min(chunk.lowest_score, 0)
        with np.errstate(divide="ignore"):
            return self.beta * np.log(positive) + noise, noise
