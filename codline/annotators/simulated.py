"""The simulated annotator: knows the truth, and says something else as often as `noise` demands."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.annotators.base import Annotator, Answers


class Simulated(Annotator):
    name: Literal["simulated"] = "simulated"
    noise: float = Field(default=0.0, ge=0, le=1)

    def answer(self, truth: np.ndarray, classes: int, rng: np.random.Generator) -> Answers:
        mistaken = rng.random(len(truth)) < self.noise
        elsewhere = (truth + rng.integers(1, max(classes, 2), len(truth))) % classes
        labels = np.where(mistaken, elsewhere, truth).astype(np.int32)
        return Answers(labels, int((labels != truth).sum()))
