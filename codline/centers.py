"""Greedy k-center: row after row, the one furthest from all centres so far.

Single precision, twice as fast as double, gives upper bounds, and it is known how far they may be off. Where they leave several rows to choose from, exact
distances decide, so the picks depend on no library's rounding.
"""

import numpy as np

from codline.geometry import Points, closest, greedy, parts_of

EPSILON = 2.0**-24  # half the distance from 1 to the next float32
SETTLED = 16  # rows whose distances are made exact together, at most


class Bounds:
    """Of the squared distance of every candidate to the closest centre: never less than it, and at most twice the slack more."""

    def __init__(self, points: Points, candidates: int) -> None:
        (self.rows,) = points.factors
        self.points, self.lengths = points, points.lengths.astype(np.float32)
        self.least, self.exact = np.full(candidates, np.inf), np.zeros(candidates, bool)
        longest, terms = points.lengths.max(initial=0), self.rows.shape[1] * EPSILON
        # A sum of d products is off by at most d·eps/(1 - d·eps) of the lengths' product, in any order of additions; the rest is of the two sums after it.
        self.slack = 2 * (terms / (1 - terms) + 2 * EPSILON) * np.sqrt(points.lengths[:candidates] * longest) + 4 * EPSILON * longest

    def apart(self, rows: slice | np.ndarray, centres: np.ndarray) -> np.ndarray:
        """Squared distances less the length of the row, nearly."""
        found: np.ndarray = self.rows[rows] @ self.rows[centres].T
        found *= -2
        found += self.lengths[centres]
        return found

    def brought_closer(self, least: np.ndarray, rows: slice, centres: np.ndarray) -> np.ndarray:
        for part in parts_of(len(centres), max(len(least), self.rows.shape[1])):
            found = self.apart(rows, centres[part]).min(axis=1) + self.points.lengths[rows]
            self.exact[rows] &= found - self.slack[rows] >= least
            least = np.minimum(least, found + self.slack[rows])
        return least

    def decided(self, rows: slice, centres: list[int], rival: float) -> bool:
        """Is the largest of these rows' distances larger than all others, or exact? If not, those that it might be are made exact."""
        bounds = self.least[rows]
        first = int(bounds.argmax())
        if self.exact[rows.start + first]:
            return True
        at_least = bounds[first] - 2 * self.slack[rows.start + first]
        close = bounds >= at_least
        if close.sum() == 1 and rival < at_least:
            return True
        open_ = np.flatnonzero(close & (bounds >= 0) & ~self.exact[rows])  # what was chosen has a value below zero
        close = rows.start + open_[np.argsort(-bounds[open_], kind="stable")[:SETTLED]]
        self.least[close], self.exact[close] = self.settled(close, np.array(centres, np.int64)), True
        return False

    def settled(self, rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
        """Exact, from the few centres that may be the closest."""
        near = [np.empty(0, np.int64)]
        least = np.full(len(rows), np.inf)
        for part in parts_of(len(centres), max(len(rows), self.rows.shape[1])):
            found = self.apart(rows, centres[part])
            least = np.minimum(least, found.min(axis=1))
            near.append(centres[part][(found <= (least + 2 * self.slack[rows])[:, None]).any(axis=0)])
        return closest(self.points, rows, np.concatenate(near), np.full(len(rows), np.inf))


def k_center(points: Points, candidates: int, count: int) -> np.ndarray:
    """So many of the first `candidates` rows; the other rows are centres already. Ties to the first row."""
    bounds = Bounds(points, candidates)
    known = range(candidates, len(points))
    return np.array(greedy(bounds.least, 0, count, bounds.brought_closer, lambda row: [row], known, bounds.decided), np.int64)
