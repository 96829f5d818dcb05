"""TypiClust (Hacohen et al., 2022): of each cluster with few labels, large ones first, the image in its densest part."""

import heapq
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.acquisition.distances import Points, by_id, clusters, nearest, unit_length
from codline.strategies.base import Chooser, Whole


class Typiclust(Chooser):
    """On this cycle's features; the paper has those of a network trained without labels. Clusters of at most `small` images come after all others.

    An image is the more typical, the smaller its mean distance to its `neighbors` nearest in the cluster, at most half of it.
    """

    name: Literal["typiclust"] = "typiclust"
    max_clusters: PositiveInt = 500
    neighbors: PositiveInt = 20
    small: NonNegativeInt = 5
    normalized: bool = True  # features of length 1

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        ids = np.concatenate([pool.ids, pool.known.ids])
        features = by_id(ids, np.concatenate([pool.features_ND, pool.known.features_MD]))
        features = unit_length(features) if self.normalized else features
        ids.sort()
        labeled = np.isin(ids, pool.known.ids)
        groups = clusters(features, min(labeled.sum() + budget, self.max_clusters, len(ids)), rng)
        return ids[self.spread(Points.of(features), groups, labeled, budget)]

    def spread(self, points: Points, groups: np.ndarray, labeled: np.ndarray, budget: int) -> list[int]:
        """The next image is that of the cluster with the fewest labels, of these the largest."""
        waiting = {}
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            typical = rows[self.by_typicality(points, rows)]
            waiting[group] = iter(typical[~labeled[typical]])
        heap = [
            ((groups == group).sum() <= self.small, labeled[groups == group].sum(), -(groups == group).sum(), group)
            for group in waiting
        ]
        heapq.heapify(heap)
        chosen: list[int] = []
        while len(chosen) < budget:
            small, count, size, group = heap[0]
            row = next(waiting[group], None)
            if row is None:
                heapq.heappop(heap)
            else:
                chosen.append(row)
                heapq.heapreplace(heap, (small, count + 1, size, group))
        return chosen

    def by_typicality(self, points: Points, rows: np.ndarray) -> np.ndarray:
        """The most typical first; ties in the order of the rows."""
        count = min(self.neighbors, max(1, len(rows) // 2), len(rows) - 1)
        if not count:
            return np.arange(len(rows))
        return np.argsort(np.sqrt(nearest(points, rows, count)).mean(axis=1), kind="stable")
