"""TypiClust (Hacohen et al., 2022): the most typical image of each cluster, clusters with few labels first."""

from collections import deque
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from codline.acquisition.distances import Points
from codline.acquisition.features import k_means, normalize_rows, sort_by_id
from codline.acquisition.typicality import rows_by_typicality
from codline.strategies.base import BatchStrategy, PoolFeatures


class Typiclust(BatchStrategy):
    """Takes one image of each cluster in turn: clusters with the fewest labels first, among these the largest first.

    An image is typical if its mean squared distance to its `neighbors` nearest images of the cluster is small. Only
    images that are neither labeled nor selected count; at most half of them are neighbors. Clusters of at most `small`
    images, which the released code drops, come after all others.
    Selects what the released code selects on the same clusters, wherever that does not fail; see docs/strategies.md.
    Differs from it: this cycle's features, not those of a self-supervised network.
    """

    feature_copies: ClassVar[float] = 2
    name: Literal["typiclust"] = "typiclust"
    max_clusters: PositiveInt = 500
    neighbors: int = Field(default=20, ge=1, le=1000)  # more distances may not add up in 64 bits
    small: NonNegativeInt = 5
    normalized: bool = True  # scale features to length 1
    # Runs of k-means, of which the best counts. Default, as in the released code: 10 up to 50 clusters, 3 above.
    n_init: PositiveInt | None = None

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        ids = np.concatenate([pool.ids, pool.labeled.ids])
        features = sort_by_id(ids, np.concatenate([pool.features_ND, pool.labeled.features_MD]))
        features = normalize_rows(features) if self.normalized else features
        ids.sort()
        is_labeled = np.isin(ids, pool.labeled.ids)
        count = int(min(is_labeled.sum() + budget, self.max_clusters, len(ids)))
        clusters = k_means(features, count, rng, self.n_init or (10 if count <= 50 else 3))
        return ids[self.select_rows(Points.from_rows(features), clusters, is_labeled, budget)]

    def select_rows(self, points: Points, clusters: np.ndarray, is_labeled: np.ndarray, budget: int) -> list[int]:
        members = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
        members.sort(key=lambda rows: (is_labeled[rows].sum(), -len(rows)))
        large = [rows for rows in members if len(rows) > self.small]
        small = [rows for rows in members if len(rows) <= self.small]
        picks: list[int] = []
        for group in (large, small):
            queue = deque(rows_by_typicality(points, rows[~is_labeled[rows]], self.neighbors) for rows in group)
            while queue and len(picks) < budget:
                row = next(queue[0], None)
                if row is None:
                    queue.popleft()
                else:
                    picks.append(row)
                    queue.rotate(-1)
        return picks
