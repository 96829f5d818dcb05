"""BADGE (Ash et al., 2020): images whose gradients at the last layer are large and unlike each other, by k-means++."""

from typing import ClassVar, Literal

import numpy as np

from codline.geometry import Points, by_id, seeds
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
        gradients = Points.of(probs - np.eye(probs.shape[1])[probs.argmax(axis=1)], features)
        start = [int(gradients.lengths.argmax())] if self.first == "longest" else []
        rows = seeds(gradients, np.ones(len(gradients)), budget - len(start), rng, start)
        return np.sort(pool.ids)[[*start, *rows]]
