"""Who answers a query."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from codline.params import Section


@dataclass(frozen=True)
class Answers:
    labels: np.ndarray  # one per id asked, in the order asked
    wrong: int  # how many of them the annotator is known to have got wrong


class Annotator(Section):
    name: str

    @abstractmethod
    def answer(self, truth: np.ndarray, classes: int, rng: np.random.Generator) -> Answers:
        """Label images whose true labels are `truth`; `rng` decides the mistakes."""
