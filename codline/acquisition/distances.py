"""Exact distances between rows, and selection by them: k-means++, nearest neighbors, greedy cover.

Rows are rounded to integers small enough that all products and sums are exact in float64. Distances, and with them
selections and ties, then do not depend on the order of additions, chunk sizes, threads or the BLAS library. The
precision is about that of float32: 21 bits at 512 features. Memory grows with the number of rows, not of pairs.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CHUNK_ROWS = 256  # rows whose coverage counts are updated together: fewer saves updates, more multiplies faster
MAX_PENDING = 64  # centers that k-means++ may add before it updates all distances
MAX_CELLS = 1 << 22  # distances in memory at a time: 32 MiB
TILE = 2048  # rows and columns of one block of distances
MAX_REJECTIONS = 16  # rejected draws in a row before k-means++ updates all distances

Rows = slice | np.ndarray | Sequence[int]


@dataclass(frozen=True)
class Points:
    """Points to measure distances between. Each is the outer product of one row per factor, never materialized."""

    factors: tuple[np.ndarray, ...]  # integers, as float32
    squared_norms: np.ndarray  # in units
    unit: float  # length of 1 in the original scale

    @classmethod
    def from_rows(cls, *factors: np.ndarray) -> "Points":
        rounded, units = zip(*(round_to_integers(rows) for rows in factors), strict=True)
        return cls(rounded, np.prod([squared_norms(rows) for rows in rounded], axis=0), math.prod(units))

    def __len__(self) -> int:
        return len(self.squared_norms)

    def squared_distances(self, rows: Rows, others: Rows) -> np.ndarray:
        """Matrix of squared distances, in units, of each row to each of the others."""
        squared = -2.0 * dot_products(self.factors[0], rows, others)
        for factor in self.factors[1:]:
            squared *= dot_products(factor, rows, others)
        squared += self.squared_norms[others]
        squared += self.squared_norms[rows][:, None]
        # With several factors the product is rounded once, so that a distance of 0 can come out negative.
        return np.maximum(squared, 0, out=squared)


def gradient_embeddings(probs_NC: np.ndarray, features_ND: np.ndarray) -> Points:
    """BADGE's embeddings: the last layer's loss gradient if the predicted class were the label.

    It is the outer product of (probs - one-hot) and the features.
    """
    return Points.from_rows(probs_NC - np.eye(probs_NC.shape[1])[probs_NC.argmax(axis=1)], features_ND)


def round_to_integers(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows scaled by a power of two and rounded, and the value of 1 in the original scale.

    The scale is the largest for which |x|² + |y|² - 2xy fits into the 53 bits of a float64.
    """
    bits = min(24, (51 - math.ceil(math.log2(max(1, rows.shape[1])))) // 2)
    shift = bits - int(np.frexp(max(rows.max(initial=0), -rows.min(initial=0)))[1])
    # Multiplying takes a tenth of the time of ldexp; in two steps, because 2.0**shift may overflow a float32.
    scaled = rows * 2.0 ** (shift // 2)
    scaled *= 2.0 ** (shift - shift // 2)
    return np.rint(scaled, out=scaled).astype(np.float32, copy=False), 2.0**-shift


def dot_products(factor: np.ndarray, rows: Rows, others: Rows) -> np.ndarray:
    products: np.ndarray = factor[rows].astype(np.float64) @ factor[others].astype(np.float64).T
    return products


def squared_norms(rows: np.ndarray) -> np.ndarray:
    squared = np.empty(len(rows))
    for chunk in row_chunks(len(rows), MAX_CELLS // CHUNK_ROWS):
        doubles = rows[chunk].astype(np.float64)
        np.einsum("ij,ij->i", doubles, doubles, out=squared[chunk])
    return squared


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Slices of rows such that a matrix of this width stays within MAX_CELLS."""
    step = max(1, MAX_CELLS // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def min_distances(points: Points, rows: Rows, others: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Squared distance of each row to the nearest of the others, or `upper` where that is smaller."""
    for chunk in row_chunks(len(others), len(upper)):
        upper = np.minimum(upper, points.squared_distances(rows, others[chunk]).min(axis=1))
    return upper


def update_min_distances(points: Points, distances: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Squared distances of the first rows to their nearest center, after these centers were added."""
    chunks = row_chunks(len(distances), TILE)
    return np.concatenate([min_distances(points, chunk, centers, distances[chunk]) for chunk in chunks])


def draw_row(weights: np.ndarray, rng: np.random.Generator) -> int:
    """A row, drawn with probability proportional to its weight."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, min(rng.random() * sums[-1], np.nextafter(sums[-1], 0)), side="right"))


def k_means_plus_plus(
    points: Points, weights: np.ndarray, count: int, rng: np.random.Generator, centers: Sequence[int] = ()
) -> np.ndarray:
    """k-means++ seeding: draw rows one by one, proportionally to weight x squared distance to the nearest center.

    Candidates are the first len(weights) rows. Distances lag up to MAX_PENDING centers behind and are then upper
    bounds: a row drawn by its bound is accepted with probability distance / bound, which samples from the true
    distribution. If only copies of centers are left, the remaining rows are drawn uniformly.
    """
    weights = weights / weights.max() if weights.any() else np.ones(len(weights))
    picks: list[int] = [] if len(centers) else [draw_row(weights, rng)][:count]
    pending, distances, rejected = [*centers, *picks], np.full(len(weights), np.inf), MAX_REJECTIONS
    while len(picks) < count:
        if len(pending) >= MAX_PENDING or rejected >= MAX_REJECTIONS:
            distances, pending, rejected = update_min_distances(points, distances, np.array(pending)), [], 0
        bounds = weights * distances
        if not bounds.any():
            break
        row = draw_row(bounds, rng)
        bound = distances[row]
        distances[row] = min_distances(points, [row], np.array(pending, np.int64), distances[[row]])[0]
        if rng.random() * bound < distances[row]:
            picks.append(row)
            pending.append(row)
            rejected = 0
        else:
            rejected += 1
    return fill_randomly(picks, np.setdiff1d(np.arange(len(weights)), [*centers, *picks]), count, rng)


def fill_randomly(picks: list[int], remaining: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The picks, extended to `count` rows by uniform draws from the remaining rows."""
    return np.concatenate([np.array(picks, np.int64), rng.permutation(remaining)[: count - len(picks)]])


def nearest_distances(points: Points, rows: np.ndarray, others: np.ndarray, count: int) -> np.ndarray:
    """Squared distances of each row to its `count` nearest of the others, ascending; a row is not its own neighbor."""
    nearest = [np.empty((0, count))]
    for chunk in row_chunks(len(rows), len(others)):
        squared = points.squared_distances(rows[chunk], others)
        squared[rows[chunk][:, None] == others] = np.inf
        nearest.append(np.partition(squared, count - 1, axis=1)[:, :count].copy())  # a view would keep the matrix
    return np.sort(np.concatenate(nearest), axis=1)


def distances_to_other_clusters(points: Points, rows: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Squared distance of each row to the nearest point of another cluster."""
    nearest, everything = [], np.arange(len(points))
    for chunk in row_chunks(len(rows), len(points)):
        same_cluster = clusters[rows[chunk]][:, None] == clusters
        squared = points.squared_distances(rows[chunk], everything)
        nearest.append(np.where(same_cluster, np.inf, squared).min(axis=1))
    return np.concatenate(nearest)


def count_neighbors(points: Points, rows: slice, others: np.ndarray, limit: float) -> np.ndarray:
    """For each row, how many of the others are closer than the limit, a squared distance."""
    counts = np.zeros(rows.stop - rows.start, np.int64)
    for chunk in row_chunks(len(counts), TILE):
        for columns in row_chunks(len(others), TILE):
            shifted = slice(rows.start + chunk.start, rows.start + chunk.stop)
            counts[chunk] += (points.squared_distances(shifted, others[columns]) < limit).sum(axis=1)
    return counts


def greedy_cover(points: Points, candidates: int, count: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Greedy maximum cover: pick, one by one, the row that has most uncovered rows closer than the radius.

    Picks come from the first `candidates` rows; the other rows cover from the start. Ties go to the first row. If
    everything is covered, the remaining rows are drawn uniformly.

    Gains only shrink, so outdated ones are upper bounds. A chunk of rows is updated, with all rows covered since its
    last update at once, only when its bound is the largest. The neighbor graph is never stored.
    """
    limit = (radius / points.unit) ** 2
    labeled = np.arange(candidates, len(points))
    is_uncovered = update_min_distances(points, np.full(candidates, np.inf), labeled) >= limit
    gains = count_neighbors(points, slice(0, candidates), np.flatnonzero(is_uncovered), limit)
    covered, picks = list[int](), list[int]()
    chunks = [slice(start, min(start + CHUNK_ROWS, candidates)) for start in range(0, candidates, CHUNK_ROWS)]
    heap, updated = [(-int(gains[rows].max()), number) for number, rows in enumerate(chunks)], [0] * len(chunks)
    heapq.heapify(heap)
    while len(picks) < count and heap[0][0] < 0:
        number = heap[0][1]
        rows = chunks[number]
        if updated[number] < len(covered):
            gains[rows] -= count_neighbors(points, rows, np.array(covered[updated[number] :]), limit)
            updated[number] = len(covered)
        else:
            picks.append(rows.start + int(gains[rows].argmax()))
            gains[picks[-1]] = -1
            uncovered = np.flatnonzero(is_uncovered)
            newly_covered = uncovered[points.squared_distances([picks[-1]], uncovered)[0] < limit]
            is_uncovered[newly_covered] = False
            covered.extend(newly_covered)
        heapq.heapreplace(heap, (-int(gains[rows].max()), number))
    return fill_randomly(picks, np.setdiff1d(np.arange(candidates), picks), count, rng)
