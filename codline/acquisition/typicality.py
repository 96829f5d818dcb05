"""Typicality (Hacohen et al., 2022): images in dense regions of feature space, the densest first."""

from collections.abc import Iterator

import numpy as np

from codline.acquisition.distances import Points, nearest_distances


def rows_by_typicality(points: Points, rows: np.ndarray, neighbors: int) -> Iterator[int]:
    """Yield all rows: each time the one with the smallest mean squared distance to its nearest remaining rows.

    `neighbors` of these count, at most half of the remaining rows. Ties go to the first row. Only rows for which the
    one just yielded counted as a neighbor are measured again. Sums of integers are exact in any order of addition.
    """
    count = -1
    while len(rows):
        if count != min(neighbors, len(rows) // 2):
            count, outdated = min(neighbors, len(rows) // 2), np.arange(len(rows))
            distance_sums, farthest = np.zeros(len(rows), np.int64), np.zeros(len(rows))
        if count:
            nearest = nearest_distances(points, rows[outdated], rows, count)
            distance_sums[outdated], farthest[outdated] = nearest.astype(np.int64).sum(axis=1), nearest[:, -1]
        place = int(distance_sums.argmin())
        yield int(rows[place])
        was_neighbor = np.delete(points.squared_distances(rows, rows[[place]])[:, 0] <= farthest, place)
        outdated = np.flatnonzero(was_neighbor)
        rows, distance_sums, farthest = (np.delete(array, place) for array in (rows, distance_sums, farthest))
