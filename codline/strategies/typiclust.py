"""TypiClust (Hacohen et al., 2022): the most typical image of each cluster, clusters with few labels first."""

import heapq
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.acquisition.distances import Points, nearest_distances
from codline.acquisition.features import k_means, normalize_rows, sort_by_id
from codline.strategies.base import BatchStrategy, PoolFeatures


class Typiclust(BatchStrategy):
    """An image is typical if its mean distance to its `neighbors` nearest images of the cluster is small.

    At most half of the cluster counts as neighbors. Clusters of at most `small` images come after all others.
    Differs from the paper: this cycle's features, not those of a self-supervised network.
    """

    name: Literal["typiclust"] = "typiclust"
    max_clusters: PositiveInt = 500
    neighbors: PositiveInt = 20
    small: NonNegativeInt = 5
    normalized: bool = True  # scale features to length 1

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        ids = np.concatenate([pool.ids, pool.labeled.ids])
        features = sort_by_id(ids, np.concatenate([pool.features_ND, pool.labeled.features_MD]))
        features = normalize_rows(features) if self.normalized else features
        ids.sort()
        is_labeled = np.isin(ids, pool.labeled.ids)
        clusters = k_means(features, min(is_labeled.sum() + budget, self.max_clusters, len(ids)), rng)
        return ids[self.select_rows(Points.from_rows(features), clusters, is_labeled, budget)]

    def select_rows(self, points: Points, clusters: np.ndarray, is_labeled: np.ndarray, budget: int) -> list[int]:
        """Take images one by one from the cluster with the fewest labels; among these, from the largest."""
        unlabeled, heap = {}, []
        for cluster in np.unique(clusters):
            rows = np.flatnonzero(clusters == cluster)
            typical = rows[self.order_by_typicality(points, rows)]
            unlabeled[cluster] = iter(typical[~is_labeled[typical]])
            heap.append((len(rows) <= self.small, is_labeled[rows].sum(), -len(rows), cluster))
        heapq.heapify(heap)
        picks: list[int] = []
        while len(picks) < budget:
            is_small, labels, size, cluster = heap[0]
            row = next(unlabeled[cluster], None)
            if row is None:
                heapq.heappop(heap)
            else:
                picks.append(row)
                heapq.heapreplace(heap, (is_small, labels + 1, size, cluster))
        return picks

    def order_by_typicality(self, points: Points, rows: np.ndarray) -> np.ndarray:
        """Most typical first; ties in the order of the rows."""
        count = min(self.neighbors, max(1, len(rows) // 2), len(rows) - 1)
        if not count:
            return np.arange(len(rows))
        return np.argsort(np.sqrt(nearest_distances(points, rows, count)).mean(axis=1), kind="stable")
