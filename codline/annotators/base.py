"""Who answers a query."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codline.core.params import Section


@dataclass(frozen=True)
class Question:
    cycle: str
    ids: np.ndarray
    truth: np.ndarray  # one per id; none for an annotator who does not know it
    classes: list[str]


@dataclass(frozen=True)
class Answers:
    labels: np.ndarray  # one per id asked, in the order asked
    wrong: int  # how many of them the annotator is known to have got wrong


class Annotator(Section):
    knows_truth: ClassVar[bool] = True

    name: str

    @abstractmethod
    def answer(self, question: Question, rng: np.random.Generator) -> Answers:
        """Label the images; `rng` decides the mistakes."""
