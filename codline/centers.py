"""Greedy k-center: row after row, the one furthest from all centres so far.

A distance that does not know of every centre is an upper bound, so most rows are never told of most centres. Single precision, twice as fast as double,
gives bounds, too, and it is known how far they may be off. Where they leave several rows to choose from, exact distances decide, so the picks depend on no
library's rounding.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from codline.geometry import Points, closest, parts_of

EPSILON = 2.0**-24  # half the distance from 1 to the next float32
BLOCK = 512  # rows among which the furthest is looked for
FIRST = 256  # centres that every row is told of
TOLD = 4  # rows of a block that are told of all others together, at most
SETTLED = 16  # rows whose distances are made exact together, at most


class Bounds:
    """Of the squared distance of every candidate to the closest centre: never less than it. Of rows that know of all centres, at most twice the slack more."""

    def __init__(self, points: Points, candidates: int, count: int) -> None:
        (self.rows,) = points.factors
        self.points, self.lengths = points, points.lengths.astype(np.float32)
        self.least, self.exact = np.full(candidates, np.inf), np.zeros(candidates, bool)
        self.aware = np.zeros(candidates, np.int64)  # of so many centres each row was told
        self.chosen: list[int] = []
        self.chosen_rows, self.chosen_lengths = np.empty((count, self.rows.shape[1]), np.float32), np.empty(count, np.float32)
        longest, terms = points.lengths.max(initial=0), self.rows.shape[1] * EPSILON
        # A sum of d products is off by at most d·eps/(1 - d·eps) of the lengths' product, in any order of additions; the rest is of the two sums after it.
        self.slack = 2 * (terms / (1 - terms) + 2 * EPSILON) * np.sqrt(points.lengths[:candidates] * longest) + 4 * EPSILON * longest
        for part in parts_of(candidates, max(FIRST, self.rows.shape[1])):
            self.tell(part, 0, min(FIRST, self.known))

    @property
    def known(self) -> int:
        """Rows that are centres already."""
        return len(self.rows) - len(self.least)

    @property
    def centres(self) -> int:
        return self.known + len(self.chosen)

    def apart(self, rows: slice | np.ndarray, start: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of these centres at a time, and the rows' squared distances to them less the length of the row, nearly."""
        ours, first = self.rows[rows], len(self.least)
        width = max(len(ours), self.rows.shape[1])
        for part in parts_of(min(stop, self.known) - start, width):
            here = slice(first + start + part.start, first + start + part.stop)
            yield np.arange(here.start, here.stop), nearly(ours, self.rows[here], self.lengths[here])
        begin = max(start - self.known, 0)
        for part in parts_of(stop - self.known - begin, width):
            here = slice(begin + part.start, begin + part.stop)
            yield np.array(self.chosen[here]), nearly(ours, self.chosen_rows[here], self.chosen_lengths[here])

    def tell(self, rows: slice | np.ndarray, start: int, stop: int) -> None:
        """These rows of the centres from one to another."""
        for _, found in self.apart(rows, start, stop):
            distances = found.min(axis=1) + self.points.lengths[rows]
            self.exact[rows] &= distances - self.slack[rows] >= self.least[rows]
            self.least[rows] = np.minimum(self.least[rows], distances + self.slack[rows])
        self.aware[rows] = stop

    def tell_furthest(self, rows: slice) -> None:
        """Of all centres those of the rows that may be furthest from them."""
        ignorant = np.flatnonzero(self.aware[rows] < self.centres)
        if len(ignorant) > TOLD:
            ignorant = ignorant[np.argpartition(self.least[rows][ignorant], -TOLD)[-TOLD:]]
        told = rows.start + ignorant
        self.tell(told, int(self.aware[told].min()), self.centres)

    def decided(self, rows: slice, first: int, rival: float) -> bool:
        """Is the distance of this row larger than all others, or exact? If not, those of the rows that might be as large are made exact."""
        if self.exact[first]:
            return True
        bounds, at_least = self.least[rows], self.least[first] - 2 * self.slack[first]
        close = bounds >= at_least
        if close.sum() == 1 and rival < at_least:
            return True
        open_ = np.flatnonzero(close & (bounds >= 0) & ~(self.exact[rows] & (self.aware[rows] == self.centres)))  # what was chosen has a value below zero
        self.settle(rows.start + open_[np.argsort(-bounds[open_], kind="stable")[:SETTLED]])
        return False

    def settle(self, rows: np.ndarray) -> None:
        """Exact, from the few centres that may be the closest."""
        near, least = [np.empty(0, np.int64)], np.full(len(rows), np.inf)
        for centres, found in self.apart(rows, 0, self.centres):
            least = np.minimum(least, found.min(axis=1))
            near.append(centres[(found <= (least + 2 * self.slack[rows])[:, None]).any(axis=0)])
        self.least[rows] = closest(self.points, rows, np.concatenate(near), np.full(len(rows), np.inf))
        self.exact[rows], self.aware[rows] = True, self.centres

    def choose(self, row: int) -> None:
        self.chosen_rows[len(self.chosen)], self.chosen_lengths[len(self.chosen)] = self.rows[row], self.lengths[row]
        self.chosen.append(row)
        self.least[row] = -1


def nearly(rows: np.ndarray, others: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows @ others.T
    found *= -2
    found += lengths
    return found


def k_center(points: Points, candidates: int, count: int) -> np.ndarray:
    """So many of the first `candidates` rows; the other rows are centres already. Ties to the first row."""
    bounds = Bounds(points, candidates, count)
    blocks = [slice(start, min(start + BLOCK, candidates)) for start in range(0, candidates, BLOCK)]
    heap = [(-float(bounds.least[rows].max()), block) for block, rows in enumerate(blocks)]
    heapq.heapify(heap)
    while len(bounds.chosen) < count:
        block = heap[0][1]
        rows = blocks[block]
        first = rows.start + int(bounds.least[rows].argmax())
        if bounds.aware[first] < bounds.centres:
            bounds.tell_furthest(rows)
        elif bounds.decided(rows, first, max((-bound for bound, _ in heap[1:3]), default=-np.inf)):
            bounds.choose(first)
        heapq.heapreplace(heap, (-float(bounds.least[rows].max()), block))
    return np.array(bounds.chosen, np.int64)
