"""Draws images by a hash of their ids: whether an image is drawn does not depend on the order of the others.

A share of content ids is decided by each image alone, so that adding or removing others changes nothing for it. A
number of images, and any draw of positions, is exact: the smallest hashes of every class, in proportion to its size.
"""

import numpy as np


def draw_key(rng: np.random.Generator) -> int:
    """A key for `draw`, from a generator."""
    return int(rng.integers(2**63))


def draw(amount: float, ids: np.ndarray, strata: np.ndarray, key: int, by_content: bool) -> np.ndarray:
    """bool (N,): the drawn images, at least one. `amount` is a share (float) or a number (int) of them.

    `strata` are class numbers. `by_content`: the ids come from the images' content, so that a share is drawn by
    threshold and is exact on average only.
    """
    if isinstance(amount, float) and by_content:
        drawn = hash_values(ids, key) < np.uint64(amount * 2.0**64)
        return drawn if drawn.any() else draw_count(1, ids, strata, key)
    return draw_count(amount if isinstance(amount, int) else max(1, round(amount * len(ids))), ids, strata, key)


def draw_count(count: int, ids: np.ndarray, strata: np.ndarray, key: int) -> np.ndarray:
    """bool (N,): `count` images, by stratum in proportion (Sainte-Lague), the smallest hashes of each.

    An additional image takes the place of at most one other: it adds at most one to its stratum's number.
    """
    order = np.lexsort((hash_values(ids, key), strata))
    _, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    ranks = np.arange(len(order)) - np.repeat(starts, sizes)
    places = (ranks + 0.5) / np.repeat(sizes, sizes)
    drawn = np.zeros(len(ids), bool)
    drawn[order[np.argsort(places, kind="stable")[:count]]] = True
    return drawn


def hash_values(ids: np.ndarray, key: int) -> np.ndarray:
    """uint64 (N,), uniform and different for different ids; other keys give independent values."""
    return finalize(finalize(ids.astype(np.uint64)) ^ np.uint64(key))


def finalize(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, a bijection of 64-bit numbers in which every bit depends on every other."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
