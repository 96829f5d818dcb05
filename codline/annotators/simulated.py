"""The simulated annotator: knows the truth, and says something else as often as `noise` demands."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.annotators.base import Annotator, Answers, Question
from codline.data import masks


class Simulated(Annotator):
    name: Literal["simulated"] = "simulated"
    noise: float = Field(default=0.0, ge=0, le=1)

    def answer(self, question: Question, rng: np.random.Generator) -> Answers:
        truth, classes = question.truth, len(question.classes)
        if truth.dtype == object:
            return Answers(*self.painted(truth, classes, rng))
        mistaken = rng.random(len(truth)) < self.noise
        elsewhere = (truth + rng.integers(1, max(classes, 2), len(truth))) % classes
        labels = np.where(mistaken, elsewhere, truth).astype(np.int32)
        return Answers(labels, int((labels != truth).sum()))

    def painted(self, truth: np.ndarray, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Masks: a mistaken one has each of its classes taken for another."""
        answers, mistaken = truth.copy(), rng.random(len(truth)) < self.noise
        for row in np.flatnonzero(mistaken):
            taken_for = np.arange(256, dtype=np.uint8)
            taken_for[:classes] = (np.arange(classes) + rng.integers(1, max(classes, 2))) % classes
            answers[row] = masks.encoded(taken_for[masks.one(truth[row])])
        return answers, int(mistaken.sum()) if classes > 1 else 0
