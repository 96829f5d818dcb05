"""Core-set (Sener and Savarese, 2018): the images furthest, in features, from everything labelled or asked so far."""

from typing import Literal

import numpy as np

from codline.acquisition.distances import Points, by_id
from codline.acquisition.k_center import k_center
from codline.strategies.base import Chooser, Whole


class CoreSet(Chooser):
    """The greedy k-center, which is what others compare with; not the paper's robust variant, an integer programme that leaves outliers out."""

    name: Literal["core_set"] = "core_set"

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        features = by_id(pool.ids, pool.features_ND)
        labeled = by_id(pool.known.ids, pool.known.features_MD)
        query: np.ndarray = np.sort(pool.ids)[
            k_center(Points.of(np.concatenate([features, labeled])), len(features), budget)
        ]
        return query
