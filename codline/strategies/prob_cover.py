"""ProbCover (Yehuda et al., 2022): images whose neighbourhoods together cover the most of the pool."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from codline.acquisition.distances import Points, by_id, clusters, cover, strangers, unit_length
from codline.strategies.base import Chooser, Whole


class ProbCover(Chooser):
    """On this cycle's features; the paper has those of a network trained without labels. An image covers all that are closer than `radius`.

    Without a radius it is the largest for which the share `purity` of the neighbourhoods is pure: all in one cluster, with as many clusters as
    classes. The share is measured on `sample` images, for it takes the distances of each to all.
    """

    name: Literal["prob_cover"] = "prob_cover"
    radius: PositiveFloat | None = None
    purity: Annotated[float, Field(gt=0, le=1)] = 0.95
    sample: PositiveInt = 1000
    normalized: bool = True  # features of length 1

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        features, labeled = by_id(pool.ids, pool.features_ND), by_id(pool.known.ids, pool.known.features_MD)
        rows = np.concatenate([features, labeled])
        rows = unit_length(rows) if self.normalized else rows
        points = Points.of(rows)
        radius = self.radius or self.pure_radius(
            points, clusters(rows, min(pool.outputs.probs_NC.shape[1], len(rows)), rng), rng
        )
        query: np.ndarray = np.sort(pool.ids)[cover(points, len(features), budget, radius, rng)]
        return query

    def pure_radius(self, points: Points, groups: np.ndarray, rng: np.random.Generator) -> float:
        """A neighbourhood is pure up to the closest point of another cluster."""
        some = np.sort(rng.choice(len(points), min(self.sample, len(points)), replace=False))
        limits = np.sort(strangers(points, some, groups))
        return float(np.sqrt(limits[min(int((1 - self.purity) * len(limits)), len(limits) - 1)])) * points.unit
