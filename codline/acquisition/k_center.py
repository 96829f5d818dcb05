"""Greedy k-center: row after row, the one furthest from all centres so far.

A distance that does not know of every centre is an upper bound, so most rows are never told of most centres. Single precision, twice as fast as double,
gives bounds, too, and it is known how far they may be off. Where they leave several rows to choose from, exact distances decide, so the picks depend on no
library's rounding.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from codline.acquisition.distances import Points, closest, parts_of

EPSILON = 2.0**-24  # half the distance from 1 to the next float32
BLOCK = 512  # rows among which the furthest is looked for
FIRST = 128  # centres that every row is told of
TOLD = 4  # rows of a block that are told of all others together, at most
FEW, SMALL = 16, 1024  # rows of a matrix, and cells of a product, that are no work for a large one
SETTLED = 16  # rows whose distances are made exact together, at most


class Bounds:
    """Of the squared distance of every candidate to the closest centre: never less than it. Of rows that know of all centres, at most twice the slack more."""

    def __init__(self, points: Points, candidates: int, count: int) -> None:
        (self.rows,) = points.factors
        self.points, self.lengths = points, points.lengths.astype(np.float32)
        self.least, self.exact = np.full(candidates, np.inf), np.zeros(candidates, bool)
        self.aware = np.zeros(candidates, np.int64)  # of so many centres each row was told
        self.known, self.chosen = len(points) - candidates, list[int]()
        self.centers = np.concatenate([np.arange(candidates, len(points)), np.zeros(count, np.int64)])
        self.center_rows = np.concatenate([self.rows[candidates:], np.empty((count, self.rows.shape[1]), np.float32)])
        self.center_lengths = np.concatenate([self.lengths[candidates:], np.empty(count, np.float32)])
        longest, terms = points.lengths.max(initial=0), self.rows.shape[1] * EPSILON
        # A sum of d products is off by at most d·eps/(1 - d·eps) of the lengths' product, in any order of additions; the rest is of the two sums after it.
        self.slack = (
            2 * (terms / (1 - terms) + 2 * EPSILON) * np.sqrt(points.lengths[:candidates] * longest)
            + 4 * EPSILON * longest
        )
        for part in parts_of(candidates, max(FIRST, self.rows.shape[1])):
            self.tell(part, 0, min(FIRST, self.known))

    def apart(self, rows: slice | np.ndarray, start: int, stop: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Some of these centres at a time, and the rows' squared distances to them less the length of the row, nearly."""
        ours = self.rows[rows]
        for part in parts_of(stop - start, max(len(ours), self.rows.shape[1])):
            some = slice(start + part.start, start + part.stop)
            found = products(ours, self.center_rows[some])
            found *= -2
            found += self.center_lengths[some]
            yield some, found

    def tell(self, rows: slice | np.ndarray, start: int, stop: int) -> None:
        """These rows of the centres from one to another."""
        for _, found in self.apart(rows, start, stop):
            distances = found.min(axis=1) + self.points.lengths[rows]
            self.exact[rows] &= distances - self.slack[rows] >= self.least[rows]
            self.least[rows] = np.minimum(self.least[rows], distances + self.slack[rows])
        self.aware[rows] = stop

    def tell_furthest(self, rows: slice) -> None:
        """Of all centres those of the rows that may be furthest from them."""
        ignorant = np.flatnonzero(self.aware[rows] < self.known)
        if len(ignorant) > TOLD:
            ignorant = ignorant[np.argpartition(self.least[rows][ignorant], -TOLD)[-TOLD:]]
        told = rows.start + ignorant
        self.tell(told, int(self.aware[told].min()), self.known)

    def decided(self, rows: slice, first: int, rival: float) -> bool:
        """Is the distance of this row larger than all others, or exact? If not, those of the rows that might be as large are made exact."""
        if self.exact[first]:
            return True
        bounds, at_least = self.least[rows], self.least[first] - 2 * self.slack[first]
        close = bounds >= at_least
        if close.sum() == 1 and rival < at_least:
            return True
        open_ = np.flatnonzero(
            close & (bounds >= 0) & ~(self.exact[rows] & (self.aware[rows] == self.known))
        )  # what was chosen has a value below zero
        self.settle(rows.start + open_[np.argsort(-bounds[open_], kind="stable")[:SETTLED]])
        return False

    def settle(self, rows: np.ndarray) -> None:
        """Exact, from the few centres that may be the closest."""
        near, least = [np.empty(0, np.int64)], np.full(len(rows), np.inf)
        for some, found in self.apart(rows, 0, self.known):
            least = np.minimum(least, found.min(axis=1))
            near.append(self.centers[some][(found <= (least + 2 * self.slack[rows])[:, None]).any(axis=0)])
        self.least[rows] = closest(self.points, rows, np.concatenate(near), np.full(len(rows), np.inf))
        self.exact[rows], self.aware[rows] = True, self.known

    def choose(self, row: int) -> None:
        self.centers[self.known], self.center_rows[self.known], self.center_lengths[self.known] = (
            row,
            self.rows[row],
            self.lengths[row],
        )
        self.known += 1
        self.chosen.append(row)
        self.least[row] = -1


def products(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of a few rows with many, some at a time: OpenBLAS takes six times as long for the same products as soon as it prepares for a large matrix."""
    step = SMALL // max(1, len(rows)) if len(rows) <= FEW else max(1, len(others))
    found = np.empty((len(rows), len(others)), np.float32)
    for start in range(0, len(others), step):
        np.matmul(rows, others[start : start + step].T, out=found[:, start : start + step])
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
        if bounds.aware[first] < bounds.known:
            bounds.tell_furthest(rows)
        elif bounds.decided(rows, first, max((-bound for bound, _ in heap[1:3]), default=-np.inf)):
            bounds.choose(first)
        heapq.heapreplace(heap, (-float(bounds.least[rows].max()), block))
    return np.array(bounds.chosen, np.int64)
