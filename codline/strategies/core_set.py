"""Core-set (Sener and Savarese, 2018): the images farthest, in feature space, from all labeled and selected ones."""

from typing import Literal

import numpy as np

from codline.acquisition.distances import Points
from codline.acquisition.features import sort_by_id
from codline.acquisition.k_center import k_center
from codline.strategies.base import BatchStrategy, PoolFeatures


class CoreSet(BatchStrategy):
    """Greedy k-center, the variant that others compare with; not the paper's robust one, a mixed integer program."""

    name: Literal["core_set"] = "core_set"

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        features = sort_by_id(pool.ids, pool.features_ND)
        labeled = sort_by_id(pool.labeled.ids, pool.labeled.features_MD)
        points = Points.from_rows(np.concatenate([features, labeled]))
        query: np.ndarray = np.sort(pool.ids)[k_center(points, len(features), budget)]
        return query
