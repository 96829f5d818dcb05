"""Base class of pickers, which turn scores into a query: they rank the images, and the first `budget` are queried."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from codline.core.params import Section

LOGITS_CHUNK = 4096  # images whose logits are in memory at once


@dataclass(frozen=True)
class CandidateChunk:
    """Some of the unlabeled images, rows aligned, ids ascending."""

    ids: np.ndarray
    scores: np.ndarray
    # Only for pickers that declare that they need it.
    predicted_classes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    lowest_score: float = 0.0  # over all chunks


@dataclass(frozen=True)
class RankedCandidates:
    """Candidates with the keys that they are sorted by, rows aligned."""

    ids: np.ndarray
    scores: np.ndarray
    predicted_classes: np.ndarray
    sort_keys: tuple[np.ndarray, ...]

    def take(self, rows: np.ndarray) -> "RankedCandidates":
        sort_keys = tuple(key[rows] for key in self.sort_keys)
        return RankedCandidates(self.ids[rows], self.scores[rows], self.predicted_classes[rows], sort_keys)

    def concatenate(self, other: "RankedCandidates") -> "RankedCandidates":
        return RankedCandidates(
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.predicted_classes, other.predicted_classes]),
            tuple(np.concatenate(pair) for pair in zip(self.sort_keys, other.sort_keys, strict=True)),
        )


class Picker(Section):
    needs_predicted_classes: ClassVar[bool] = False  # not available for segmentation
    needs_lowest_score: ClassVar[bool] = False  # costs one more pass over the scores

    name: str

    def pick(self, chunks: Iterable[CandidateChunk], budget: int, rng: np.random.Generator) -> RankedCandidates:
        """The best `budget` candidates, best first.

        Memory grows with the budget and the size of a chunk, not with the pool. Chunking does not change the result.
        """
        best = RankedCandidates(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), ())
        for chunk in chunks:
            classes = chunk.predicted_classes if len(chunk.predicted_classes) else np.zeros(len(chunk.ids), np.int64)
            candidates = RankedCandidates(chunk.ids, chunk.scores, classes, self.sort_keys(chunk, rng))
            candidates = self.prune(candidates, best, budget)
            candidates = best.concatenate(candidates) if best.sort_keys else candidates
            best = candidates.take(self.argsort(candidates)[:budget])
        return best

    @abstractmethod
    def sort_keys(self, chunk: CandidateChunk, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Keys per candidate, highest first; ties go to the next key, then to the smaller id."""

    def argsort(self, candidates: RankedCandidates) -> np.ndarray:
        """Rows, best first. A candidate that is not among the first n must not get there by adding candidates."""
        return np.lexsort([candidates.ids, *(-key for key in reversed(candidates.sort_keys))])

    def prune(self, candidates: RankedCandidates, best: RankedCandidates, budget: int) -> RankedCandidates:
        """Drops candidates that cannot be among the best: a comparison is cheaper than sorting."""
        first_key = candidates.sort_keys[0]
        if len(best.ids) == budget:
            threshold = best.sort_keys[0][-1]
        elif len(candidates.ids) > budget:
            threshold = np.partition(first_key, -budget)[-budget]
        else:
            return candidates
        return candidates.take(np.flatnonzero(first_key >= threshold))


def predicted_classes(logits: Callable[[np.ndarray], np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The most likely class of each id. `logits` is called with one chunk of ids at a time, to bound memory."""
    chunks = (ids[start : start + LOGITS_CHUNK] for start in range(0, len(ids), LOGITS_CHUNK))
    return np.concatenate([np.empty(0, np.int64), *(logits(chunk).argmax(axis=1) for chunk in chunks)])
