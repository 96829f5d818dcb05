"""How scores become a query: a frozen object that ranks the images; the first of the ranking are asked for."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from codline.core.params import Section

STRETCH = 4096  # images whose outputs are looked at together


@dataclass(frozen=True)
class Candidates:
    """A stretch of the images that can be asked for, rows aligned, in the order of their ids."""

    ids: np.ndarray
    scores: np.ndarray
    predicted: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # the likeliest class of each, for a picker that looks at it
    least: float = 0.0  # the lowest score of all stretches, for a picker that looks at it


@dataclass(frozen=True)
class Ranked:
    """The best so far, rows aligned."""

    ids: np.ndarray
    scores: np.ndarray
    groups: np.ndarray
    keys: tuple[np.ndarray, ...]

    def rows(self, rows: np.ndarray) -> "Ranked":
        return Ranked(self.ids[rows], self.scores[rows], self.groups[rows], tuple(key[rows] for key in self.keys))

    def joined(self, other: "Ranked") -> "Ranked":
        ids, scores, groups = (
            np.concatenate(pair)
            for pair in ((self.ids, other.ids), (self.scores, other.scores), (self.groups, other.groups))
        )
        return Ranked(
            ids, scores, groups, tuple(np.concatenate(pair) for pair in zip(self.keys, other.keys, strict=True))
        )


class Picker(Section):
    """Fields are the picker's own parameters; data comes to the method."""

    looks_at_classes: ClassVar[bool] = (
        False  # whether it needs the predicted class of every image, which dense outputs do not have
    )
    looks_at_least: ClassVar[bool] = (
        False  # whether it needs the lowest score of all, which takes another pass over them
    )

    name: str

    def pick(self, stretches: Iterable[Candidates], budget: int, rng: np.random.Generator) -> Ranked:
        """So many, the most wanted first. Memory grows with the budget and one stretch, not with the pool; how it is cut into stretches does not matter."""
        best = Ranked(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), ())
        for stretch in stretches:
            groups = stretch.predicted if len(stretch.predicted) else np.zeros(len(stretch.ids), np.int64)
            more = self.promising(Ranked(stretch.ids, stretch.scores, groups, self.keys(stretch, rng)), best, budget)
            more = best.joined(more) if best.keys else more
            best = more.rows(self.order(more)[:budget])
        return best

    @abstractmethod
    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """What ranks each candidate by itself: the highest first; ties go by the next key, at last to the smaller id."""

    def order(self, ranked: Ranked) -> np.ndarray:
        """Rows, the most wanted first. Who is not among the first with these images is not among them with more."""
        return np.lexsort([ranked.ids, *(-key for key in reversed(ranked.keys))])

    def promising(self, more: Ranked, best: Ranked, budget: int) -> Ranked:
        """Those that may be among the best: to compare is cheaper than to sort."""
        if len(best.ids) == budget:
            floor = best.keys[0][-1]
        elif len(more.ids) > budget:
            floor = np.partition(more.keys[0], -budget)[-budget]
        else:
            return more
        return more.rows(np.flatnonzero(more.keys[0] >= floor))


def predicted(take: Callable[[np.ndarray], np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The likeliest class of each id, the first of several; `take` gives the logits of some ids, so that those of all need not fit in memory."""
    parts = [take(ids[start : start + STRETCH]).argmax(axis=1) for start in range(0, len(ids), STRETCH)]
    return np.concatenate([np.empty(0, np.int64), *parts])
