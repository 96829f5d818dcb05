"""How scores become a query: a frozen object that ranks the images; the first of the ranking are asked for."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from codline.params import Section

STRETCH = 4096  # images whose outputs are looked at together


@dataclass(frozen=True)
class Candidates:
    """The images that can be asked for, rows aligned."""

    ids: np.ndarray
    scores: np.ndarray
    predicted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # the likeliest class of each, for a picker that looks at it

    def by_id(self) -> "Candidates":
        order = np.argsort(self.ids)
        return Candidates(self.ids[order], self.scores[order], self.predicted[order] if len(self.predicted) else self.predicted)


class Picker(Section):
    """Fields are the picker's own parameters; data comes to the method."""

    looks_at_classes: ClassVar[bool] = False  # whether it needs the predicted class of every image, which dense outputs do not have

    name: str

    def pick(self, candidates: Candidates, budget: int, rng: np.random.Generator) -> np.ndarray:
        """So many ids, the most wanted first, whatever the order of the rows."""
        ordered = candidates.by_id()
        keys = self.keys(ordered, rng)
        return ordered.ids[np.lexsort([-key for key in reversed(keys)])[:budget]]

    @abstractmethod
    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """What ranks the candidates, who come in the order of their ids: the highest first; ties go by the next key, at last to the smaller id."""


def predicted(take: Callable[[np.ndarray], np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The likeliest class of each id, the first of several; `take` gives the logits of some ids, so that those of all need not fit in memory."""
    parts = [take(ids[start : start + STRETCH]).argmax(axis=1) for start in range(0, len(ids), STRETCH)]
    return np.concatenate([np.empty(0, np.int64), *parts])
