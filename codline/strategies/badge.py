"""BADGE (Ash et al., 2020): images whose gradients at the last layer are large and unlike each other, by k-means++."""

from typing import ClassVar, Literal

import numpy as np

from codline.acquisition.distances import by_id, gradients, seeds
from codline.strategies.base import Chooser, Whole


class Badge(Chooser):
    """The gradient, for the likeliest class taken as the label, is the outer product of (probs - one-hot) and features; it is never written out.

    `first` is how the first image is found: the longest gradient, as in the authors' code, or any, as in k-means++.
    """

    dense: ClassVar[bool] = False
    name: Literal["badge"] = "badge"
    first: Literal["longest", "any"] = "longest"

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        probs, features = by_id(pool.ids, pool.outputs.probs_NC, "outputs"), by_id(pool.ids, pool.features_ND)
        points = gradients(probs, features)
        start = [int(points.lengths.argmax())] if self.first == "longest" else []
        rows = seeds(points, np.ones(len(points)), budget - len(start), rng, start)
        return np.sort(pool.ids)[[*start, *rows]]
