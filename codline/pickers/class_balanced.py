"""Class-balanced: as many of each predicted class, as far as the pool allows; within a class, the highest scores."""

from typing import ClassVar, Literal

import numpy as np

from codline.pickers.base import Candidates, Picker, Ranked


class ClassBalanced(Picker):
    """In turns: the best of every class, then the second best of each, and so on. A class that has run out is left out; the last turn goes by score."""

    looks_at_classes: ClassVar[bool] = True

    name: Literal["class_balanced"] = "class_balanced"

    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (candidates.scores,)

    def order(self, ranked: Ranked) -> np.ndarray:
        order = np.lexsort((ranked.ids, -ranked.scores, ranked.groups))
        classes = ranked.groups[order]
        turns = np.empty(len(order), np.int64)
        turns[order] = np.arange(len(order)) - np.searchsorted(classes, classes)
        return np.lexsort((ranked.ids, -ranked.scores, turns))

    def promising(self, more: Ranked, best: Ranked, budget: int) -> Ranked:
        return more
