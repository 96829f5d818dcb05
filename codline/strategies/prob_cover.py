"""ProbCover (Yehuda et al., 2022): images whose neighborhoods together cover most of the pool."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from codline.acquisition.distances import Points, distances_to_other_clusters, greedy_cover
from codline.acquisition.features import k_means, normalize_rows, sort_by_id
from codline.strategies.base import BatchStrategy, PoolFeatures


class ProbCover(BatchStrategy):
    """An image covers all images closer than `radius`.

    By default, the radius is the largest for which a share of `purity` of the neighborhoods is pure, that is, within
    one of as many clusters as there are classes. The share is estimated on `sample` images.
    Differs from the paper: this cycle's features, not those of a self-supervised network.
    """

    feature_copies: ClassVar[float] = 4
    name: Literal["prob_cover"] = "prob_cover"
    radius: PositiveFloat | None = None
    purity: Annotated[float, Field(gt=0, le=1)] = 0.95
    sample: PositiveInt = 1000
    normalized: bool = True  # scale features to length 1

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        features = sort_by_id(pool.ids, pool.features_ND)
        rows = np.concatenate([features, sort_by_id(pool.labeled.ids, pool.labeled.features_MD)])
        rows = normalize_rows(rows) if self.normalized else rows
        points, radius = Points.from_rows(rows), self.radius
        if radius is None:
            clusters = k_means(rows, min(pool.outputs.probs_NC.shape[1], len(rows)), rng)
            radius = self.pure_radius(points, clusters, rng)
        query: np.ndarray = np.sort(pool.ids)[greedy_cover(points, len(features), budget, radius, rng)]
        return query

    def pure_radius(self, points: Points, clusters: np.ndarray, rng: np.random.Generator) -> float:
        """A neighborhood is pure up to the nearest point of another cluster."""
        sample = np.sort(rng.choice(len(points), min(self.sample, len(points)), replace=False))
        limits = np.sort(distances_to_other_clusters(points, sample, clusters))
        return float(np.sqrt(limits[min(int((1 - self.purity) * len(limits)), len(limits) - 1)])) * points.unit
