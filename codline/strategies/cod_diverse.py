"""COD with diversity (our own): images whose outputs moved much since the last cycle's model, and whose features are unlike each other."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from codline.cyclic import Cyclic
from codline.discrepancy import discrepancy
from codline.geometry import Points, by_id, k_center, seeds
from codline.strategies.base import Chooser, Whole


class CodDiverse(Cyclic, Chooser):
    """Two forms:

    seeding: k-means++ draws, in proportion to squared distance x COD^`power`.
    k_center: of the budget x `pool_factor` images that COD wants most, those furthest from each other.

    With `beyond_labeled`, distances are to the labelled images, too. What COD does in the first cycle is in codline/cyclic.py; where it wants the least
    moved, the weight of an image is how much less it moved than the one that moved most.
    """

    name: Literal["cod_diverse"] = "cod_diverse"
    form: Literal["seeding", "k_center"] = "seeding"
    power: PositiveFloat = 1.0
    pool_factor: Annotated[float, Field(ge=1)] = 3.0
    beyond_labeled: bool = True

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        scores = self.cod(pool, rng)
        features, labeled = by_id(pool.ids, pool.features_ND), by_id(pool.known.ids, pool.known.features_MD)
        centres = labeled if self.beyond_labeled else labeled[:0]
        form = self.by_seeding if self.form == "seeding" else self.by_k_center
        query: np.ndarray = np.sort(pool.ids)[form(scores, features, centres, budget, rng)]
        return query

    def cod(self, pool: Whole, rng: np.random.Generator) -> np.ndarray:
        other = self.other(pool.first_cycle)
        if other is None:
            return rng.random(len(pool.ids))
        moved = by_id(pool.ids, discrepancy(pool.outputs.of(self.outputs), pool.others[other].of(self.outputs)), "outputs")
        return self.wanted(moved, pool.first_cycle)

    def by_seeding(self, scores: np.ndarray, features: np.ndarray, centres: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        weights = scores - min(0.0, scores.min())
        weights = (weights / (weights.max() or 1.0)) ** self.power
        points = Points.of(np.concatenate([features, centres]))
        return seeds(points, weights, budget, rng, range(len(features), len(points)))

    def by_k_center(self, scores: np.ndarray, features: np.ndarray, centres: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        """Without centres, the most wanted is the first."""
        top = np.argsort(-scores, kind="stable")[: round(self.pool_factor * budget)]
        start = top[: 0 if len(centres) else 1]
        rest = np.sort(top[len(start) :])
        points = Points.of(np.concatenate([features[rest], features[start], centres]))
        return np.concatenate([start, rest[k_center(points, len(rest), budget - len(start))]])
