"""Class-balanced: the highest scores of each predicted class, equally many of each as far as possible."""

from typing import ClassVar, Literal

import numpy as np

from codline.pickers.base import CandidateChunk, Picker, RankedCandidates


class ClassBalanced(Picker):
    """Round robin: the best of every class, then the second best, and so on. Within a round, by score."""

    needs_predicted_classes: ClassVar[bool] = True

    name: Literal["class_balanced"] = "class_balanced"

    def sort_keys(self, chunk: CandidateChunk, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (chunk.scores,)

    def argsort(self, candidates: RankedCandidates) -> np.ndarray:
        by_class = np.lexsort((candidates.ids, -candidates.scores, candidates.predicted_classes))
        classes = candidates.predicted_classes[by_class]
        rounds = np.empty(len(by_class), np.int64)
        rounds[by_class] = np.arange(len(by_class)) - np.searchsorted(classes, classes)
        return np.lexsort((candidates.ids, -candidates.scores, rounds))

    def prune(self, candidates: RankedCandidates, best: RankedCandidates, budget: int) -> RankedCandidates:
        return candidates
