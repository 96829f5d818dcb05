"""Greedy k-center: pick, one by one, the row farthest from all centers so far.

A distance that was computed before the latest centers is an upper bound, so most rows are never compared with most
centers. Bounds are computed in float32, twice as fast as float64, with a known rounding error (the slack). Only where
they leave several candidates for the maximum are exact distances computed, so picks depend on no library's rounding.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from codline.acquisition.distances import Points, min_distances, row_chunks

EPSILON = 2.0**-24  # half the distance from 1 to the next float32
CHUNK_ROWS = 512  # rows among which the maximum is searched
FIRST_CENTERS = 128  # centers that every row is compared with at the start
MAX_UPDATED_ROWS = 4  # rows of a chunk that are compared with their missing centers together
FEW_ROWS, SMALL_CELLS = 16, 1024  # a product with at most FEW_ROWS rows is computed SMALL_CELLS cells at a time
MAX_EXACT_ROWS = 16  # rows whose distances are computed exactly together


class DistanceBounds:
    """Upper bounds on each candidate's squared distance to its nearest center.

    A bound is tight (within 2 * slack) once the row has been compared with every center.
    """

    def __init__(self, points: Points, candidates: int, count: int) -> None:
        (self.rows,) = points.factors
        self.points, self.squared_norms = points, points.squared_norms.astype(np.float32)
        self.upper, self.is_exact = np.full(candidates, np.inf), np.zeros(candidates, bool)
        self.compared = np.zeros(candidates, np.int64)  # the number of centers that each row was compared with
        self.center_count, self.picks = len(points) - candidates, list[int]()
        width = self.rows.shape[1]
        self.centers = np.concatenate([np.arange(candidates, len(points)), np.zeros(count, np.int64)])
        self.center_rows = np.concatenate([self.rows[candidates:], np.empty((count, width), np.float32)])
        self.center_norms = np.concatenate([self.squared_norms[candidates:], np.empty(count, np.float32)])
        # In any order of additions, a sum of d products is off by at most d*eps/(1 - d*eps) times the product of the
        # norms. The remaining terms bound the rounding of the two additions after it.
        largest, error = points.squared_norms.max(initial=0), width * EPSILON
        product_error = error / (1 - error) + 2 * EPSILON
        norm_products = np.sqrt(points.squared_norms[:candidates] * largest)
        self.slack = 2 * product_error * norm_products + 4 * EPSILON * largest
        for chunk in row_chunks(candidates, max(FIRST_CENTERS, width)):
            self.compare(chunk, 0, min(FIRST_CENTERS, self.center_count))

    def distance_chunks(self, rows: slice | np.ndarray, start: int, stop: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield chunks of the centers, and the rows' approximate squared distances to them, less the row's norm."""
        selected = self.rows[rows]
        for chunk in row_chunks(stop - start, max(len(selected), self.rows.shape[1])):
            centers = slice(start + chunk.start, start + chunk.stop)
            distances = float32_products(selected, self.center_rows[centers])
            distances *= -2
            distances += self.center_norms[centers]
            yield centers, distances

    def compare(self, rows: slice | np.ndarray, start: int, stop: int) -> None:
        """Lower the bounds of these rows by the centers from start to stop."""
        for _, chunk in self.distance_chunks(rows, start, stop):
            distances = chunk.min(axis=1) + self.points.squared_norms[rows]
            self.is_exact[rows] &= distances - self.slack[rows] >= self.upper[rows]
            self.upper[rows] = np.minimum(self.upper[rows], distances + self.slack[rows])
        self.compared[rows] = stop

    def compare_farthest(self, rows: slice) -> None:
        """Compare those rows with the largest bounds with all centers that they were not compared with."""
        outdated = np.flatnonzero(self.compared[rows] < self.center_count)
        if len(outdated) > MAX_UPDATED_ROWS:
            largest = np.argpartition(self.upper[rows][outdated], -MAX_UPDATED_ROWS)[-MAX_UPDATED_ROWS:]
            outdated = outdated[largest]
        farthest = rows.start + outdated
        self.compare(farthest, int(self.compared[farthest].min()), self.center_count)

    def is_decided(self, rows: slice, first: int, rival: float) -> bool:
        """Whether `first` is certainly the farthest row. If not, compute exact distances of rows that may be."""
        if self.is_exact[first]:
            return True
        bounds, lower = self.upper[rows], self.upper[first] - 2 * self.slack[first]
        may_be_farthest = bounds >= lower
        if may_be_farthest.sum() == 1 and rival < lower:
            return True
        is_final = self.is_exact[rows] & (self.compared[rows] == self.center_count)
        is_pick = bounds < 0
        undecided = np.flatnonzero(may_be_farthest & ~is_pick & ~is_final)
        self.make_exact(rows.start + undecided[np.argsort(-bounds[undecided], kind="stable")[:MAX_EXACT_ROWS]])
        return False

    def make_exact(self, rows: np.ndarray) -> None:
        """Compute exact distances, from those few centers that may be the nearest."""
        near, smallest = [np.empty(0, np.int64)], np.full(len(rows), np.inf)
        for centers, distances in self.distance_chunks(rows, 0, self.center_count):
            smallest = np.minimum(smallest, distances.min(axis=1))
            may_be_nearest = distances <= (smallest + 2 * self.slack[rows])[:, None]
            near.append(self.centers[centers][may_be_nearest.any(axis=0)])
        self.upper[rows] = min_distances(self.points, rows, np.concatenate(near), np.full(len(rows), np.inf))
        self.is_exact[rows], self.compared[rows] = True, self.center_count

    def add_center(self, row: int) -> None:
        last = self.center_count
        self.centers[last], self.center_rows[last] = row, self.rows[row]
        self.center_norms[last] = self.squared_norms[row]
        self.center_count += 1
        self.picks.append(row)
        self.upper[row] = -1


def float32_products(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """rows @ others.T. Few rows are multiplied in small pieces, because OpenBLAS prepares slowly for a large matrix."""
    step = SMALL_CELLS // max(1, len(rows)) if len(rows) <= FEW_ROWS else max(1, len(others))
    products = np.empty((len(rows), len(others)), np.float32)
    for start in range(0, len(others), step):
        np.matmul(rows, others[start : start + step].T, out=products[:, start : start + step])
    return products


def k_center(points: Points, candidates: int, count: int) -> np.ndarray:
    """Pick `count` of the first `candidates` rows; the other rows are centers already. Ties go to the first row."""
    bounds = DistanceBounds(points, candidates, count)
    chunks = [slice(start, min(start + CHUNK_ROWS, candidates)) for start in range(0, candidates, CHUNK_ROWS)]
    heap = [(-float(bounds.upper[rows].max()), number) for number, rows in enumerate(chunks)]
    heapq.heapify(heap)
    while len(bounds.picks) < count:
        number = heap[0][1]
        rows = chunks[number]
        first = rows.start + int(bounds.upper[rows].argmax())
        rival = max((-bound for bound, _ in heap[1:3]), default=-np.inf)
        if bounds.compared[first] < bounds.center_count:
            bounds.compare_farthest(rows)
        elif bounds.is_decided(rows, first, rival):
            bounds.add_center(first)
        heapq.heapreplace(heap, (-float(bounds.upper[rows].max()), number))
    return np.array(bounds.picks, np.int64)
