"""BADGE (Ash et al., 2020): images with large and diverse gradients at the last layer, by k-means++."""

from typing import ClassVar, Literal

import numpy as np

from codline.acquisition.distances import gradient_embeddings, k_means_plus_plus
from codline.acquisition.features import sort_by_id
from codline.strategies.base import BatchStrategy, PoolFeatures


class Badge(BatchStrategy):
    """`first`: start with the longest gradient, as in the authors' code, or with any image, as in k-means++."""

    dense: ClassVar[bool] = False
    feature_copies: ClassVar[float] = 2
    output_copies: ClassVar[float] = 3
    name: Literal["badge"] = "badge"
    first: Literal["longest", "any"] = "longest"

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        probs = sort_by_id(pool.ids, pool.outputs.probs_NC, "outputs")
        gradients = gradient_embeddings(probs, sort_by_id(pool.ids, pool.features_ND))
        start = [int(gradients.squared_norms.argmax())] if self.first == "longest" else []
        rows = k_means_plus_plus(gradients, np.ones(len(gradients)), budget - len(start), rng, start)
        return np.sort(pool.ids)[[*start, *rows]]
