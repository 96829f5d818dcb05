"""Distances between rows: greedy choices, k-means++ draws, nearest neighbours, covers. Memory grows with the rows, never with their pairs.

Rows are rounded to whole numbers so small that their products and sums are exact in float64. No order of additions, no block size, thread count or BLAS
changes a distance, so picks are the same everywhere, and equal distances are equal. It costs what float32 would: 21 bits of the largest at 512 features.
"""

import heapq
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codline.core.errors import DataError

BLOCK = 256  # rows whose distances go stale together; fewer are lazier, more multiply faster
PENDING = 64  # centres that distances may lag behind
CELLS = 1 << 22  # distances held at a time: 32 MiB
SQUARE = 2048  # the side of a square of them
REJECTIONS = 16  # in a row, before all distances are brought up to date

Rows = slice | np.ndarray | Sequence[int]
Less = Callable[[np.ndarray, slice, np.ndarray], np.ndarray]  # values, whose they are, what happened -> values
Events = Callable[[int], Iterable[int]]  # the row taken -> what happens


@dataclass(frozen=True)
class Points:
    """Points as rows of factors: each is the outer product of its rows, which is never written out."""

    factors: tuple[np.ndarray, ...]  # whole numbers, as float32
    lengths: np.ndarray  # squared, in units
    unit: float  # what 1 is worth

    @classmethod
    def of(cls, *factors: np.ndarray) -> "Points":
        rounded, units = zip(*(whole(rows) for rows in factors), strict=True)
        return cls(rounded, np.prod([squares(rows) for rows in rounded], axis=0), math.prod(units))

    def __len__(self) -> int:
        return len(self.lengths)

    def squared(self, rows: Rows, others: Rows) -> np.ndarray:
        """Squared distances, in units, of each row to each of the others."""
        apart = -2.0 * products(self.factors[0], rows, others)
        for factor in self.factors[1:]:
            apart *= products(factor, rows, others)
        apart += self.lengths[others]
        apart += self.lengths[rows][:, None]
        return np.maximum(apart, 0, out=apart)  # a product of two exact factors is rounded once


def gradients(probs_NC: np.ndarray, features_ND: np.ndarray) -> Points:
    """Those of the loss at the last layer, were the likeliest class the true one: outer products of (probs - one-hot) and features."""
    return Points.of(probs_NC - np.eye(probs_NC.shape[1])[probs_NC.argmax(axis=1)], features_ND)


def whole(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows as whole numbers, and the power of two that 1 is worth. |x|² + |y|² - 2xy stays within the 53 bits of a float64."""
    bits = min(24, (51 - math.ceil(math.log2(max(1, rows.shape[1])))) // 2)
    shift = bits - int(np.frexp(max(rows.max(initial=0), -rows.min(initial=0)))[1])
    scaled = rows * 2.0 ** (
        shift // 2
    )  # a tenth of the time of ldexp; in two steps, for the whole of it may be more than a float32 can hold
    scaled *= 2.0 ** (shift - shift // 2)
    return np.rint(scaled, out=scaled).astype(np.float32, copy=False), 2.0**-shift


def products(factor: np.ndarray, rows: Rows, others: Rows) -> np.ndarray:
    found: np.ndarray = factor[rows].astype(np.float64) @ factor[others].astype(np.float64).T
    return found


def squares(rows: np.ndarray) -> np.ndarray:
    found = np.empty(len(rows))
    for part in parts_of(len(rows), CELLS // BLOCK):
        doubles = rows[part].astype(np.float64)
        np.einsum("ij,ij->i", doubles, doubles, out=found[part])
    return found


def parts_of(rows: int, width: int) -> Iterator[slice]:
    """Stretches of rows, so that a matrix of this width stays within CELLS."""
    step = max(1, CELLS // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def by_id(ids: np.ndarray, rows: np.ndarray, what: str = "features") -> np.ndarray:
    """In the order of the ids, so that the order of the rows does not matter and ties go to the smaller id."""
    return finite(ids, rows, what)[np.argsort(ids)]


def finite(ids: np.ndarray, rows: np.ndarray, what: str) -> np.ndarray:
    strange = ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if strange.any():
        raise DataError(f"{what} of image {ids[strange].min()}: found NaN or infinity, expected finite numbers")
    return rows


def unit_length(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; those of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: np.ndarray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return scaled


def closest(points: Points, rows: Rows, others: np.ndarray, least: np.ndarray) -> np.ndarray:
    """The squared distance of each row to the closest of the others, if it is less than `least`."""
    for part in parts_of(len(others), len(least)):
        least = np.minimum(least, points.squared(rows, others[part]).min(axis=1))
    return least


def greedy(values: np.ndarray, floor: int, count: int, less: Less, events: Events) -> list[int]:
    """So many rows, each the one with the largest value, ties to the first; fewer, if no value as large as the floor is left.

    A row taken causes events, and `less` brings values up to date with events: they only shrink, so old ones are upper bounds. A block of rows is brought
    up to date, with all the events that it missed at once, only when its bound is the largest of all: the picks are those of the plain greedy.
    """
    happened, chosen = list[int](), list[int]()
    blocks = [slice(start, min(start + BLOCK, len(values))) for start in range(0, len(values), BLOCK)]
    heap, seen = [(-float(values[rows].max()), block) for block, rows in enumerate(blocks)], [0] * len(blocks)
    heapq.heapify(heap)
    while len(chosen) < count and -heap[0][0] >= floor:
        block = heap[0][1]
        rows = blocks[block]
        if seen[block] < len(happened):
            values[rows] = less(values[rows], rows, np.array(happened[seen[block] :]))
            seen[block] = len(happened)
        else:
            chosen.append(rows.start + int(values[rows].argmax()))
            values[chosen[-1]] = -1
            happened.extend(events(chosen[-1]))
        heapq.heapreplace(heap, (-float(values[rows].max()), block))
    return chosen


def drawn(weights: np.ndarray, rng: np.random.Generator) -> int:
    """A row, with a probability in proportion to its weight."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, min(rng.random() * sums[-1], np.nextafter(sums[-1], 0)), side="right"))


def seeds(
    points: Points, weights: np.ndarray, count: int, rng: np.random.Generator, centres: Sequence[int] = ()
) -> np.ndarray:
    """k-means++: rows drawn one after the other, in proportion to weight x squared distance to the closest centre. Candidates are the rows with a weight.

    Distances lag behind by up to PENDING centres: they are then upper bounds. A row drawn by its bound is kept with the probability true distance / bound,
    else another is drawn, which is the distribution of the true distances. Where nothing is left but copies of centres, the rest is drawn evenly.
    """
    weights = weights / weights.max() if weights.any() else np.ones(len(weights))
    chosen: list[int] = [] if len(centres) else [drawn(weights, rng)][:count]
    pending, least, rejected = [*centres, *chosen], np.full(len(weights), np.inf), REJECTIONS
    while len(chosen) < count:
        if len(pending) >= PENDING or rejected >= REJECTIONS:
            least, pending, rejected = brought_up(points, least, np.array(pending)), [], 0
        bounds = weights * least
        if not bounds.any():
            break
        row = drawn(bounds, rng)
        bound, least[row] = least[row], closest(points, [row], np.array(pending, np.int64), least[[row]])[0]
        if rng.random() * bound < least[row]:
            chosen.append(row)
            pending.append(row)
            rejected = 0
        else:
            rejected += 1
    return filled_up(chosen, np.setdiff1d(np.arange(len(weights)), [*centres, *chosen]), count, rng)


def brought_up(points: Points, least: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.concatenate([closest(points, part, centres, least[part]) for part in parts_of(len(least), SQUARE)])


def nearest(points: Points, rows: np.ndarray, count: int) -> np.ndarray:
    """The squared distances of each of the rows to so many of the other rows that are closest to it."""
    found = []
    for part in parts_of(len(rows), len(rows)):
        apart = points.squared(rows[part], rows)
        apart[np.arange(part.stop - part.start), np.arange(part.start, part.stop)] = np.inf  # itself
        found.append(np.partition(apart, count - 1, axis=1)[:, :count].copy())  # a view would keep all of it
    return np.sort(np.concatenate(found), axis=1)


def strangers(points: Points, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The squared distance of each of the rows to the closest point of another group."""
    parts = [(rows[part], np.arange(len(points))) for part in parts_of(len(rows), len(points))]
    return np.concatenate(
        [
            np.where(groups[some][:, None] == groups, np.inf, points.squared(some, all_)).min(axis=1)
            for some, all_ in parts
        ]
    )


def neighbors(points: Points, rows: slice, others: np.ndarray, limit: float) -> np.ndarray:
    """How many of the others each of the rows has within a squared distance of less than the limit."""
    found = np.zeros(rows.stop - rows.start, np.int64)
    for part in parts_of(len(found), SQUARE):
        for some in parts_of(len(others), SQUARE):
            found[part] += (
                points.squared(slice(rows.start + part.start, rows.start + part.stop), others[some]) < limit
            ).sum(axis=1)
    return found


def cover(points: Points, candidates: int, count: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Greedy: so many of the first `candidates` rows, each with the most uncovered rows closer than the radius; the other rows cover from the start.

    Each row becomes covered once, and only then is taken off its neighbours' counts: the neighbour graph is never kept. Ties to the first row. Where
    nothing is left to cover, the rest is drawn evenly.
    """
    limit = (radius / points.unit) ** 2
    uncovered = brought_up(points, np.full(candidates, np.inf), np.arange(candidates, len(points))) >= limit
    gains = neighbors(points, slice(0, candidates), np.flatnonzero(uncovered), limit)

    def fewer(gains: np.ndarray, rows: slice, covered: np.ndarray) -> np.ndarray:
        left: np.ndarray = gains - neighbors(points, rows, covered, limit)
        return left

    def newly_covered(row: int) -> np.ndarray:
        left = np.flatnonzero(uncovered)
        near: np.ndarray = left[points.squared([row], left)[0] < limit]
        uncovered[near] = False
        return near

    chosen = greedy(gains, 1, count, fewer, newly_covered)
    return filled_up(chosen, np.setdiff1d(np.arange(candidates), chosen), count, rng)


def filled_up(chosen: list[int], left: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([np.array(chosen, np.int64), rng.permutation(left)[: count - len(chosen)]])


def clusters(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """k-means: the number of each row's cluster. In one thread, for several add up in the order in which they finish."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # a second to import, for the strategies that cluster alone
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    seed = int(rng.integers(1 << 31))
    small = {"n_clusters": count, "n_init": 1, "random_state": seed}
    means = KMeans(**small) if count <= 50 else MiniBatchKMeans(**small, batch_size=5000)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters: some stay empty
        found: np.ndarray = means.fit_predict(rows)
    return found
