"""COD with diversity (our own): images whose outputs moved much since the last cycle's model, and that are unlike each other."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from codline.acquisition.cod_rules import Cyclic
from codline.acquisition.discrepancy import discrepancy
from codline.acquisition.distances import Points, by_id, gradients, seeds
from codline.acquisition.k_center import k_center
from codline.core.errors import UserError
from codline.strategies.base import Chooser, Whole


class CodDiverse(Cyclic, Chooser):
    """Four forms:

    unsure: k-means++ draws, in proportion to COD^`power` x (1 - margin of the two likeliest classes)^`sharpness` x squared distance of the gradients at the
    last layer, as BADGE sees them.
    gradients: the same without the margin.
    seeding: the same with the distance of the features; with `beyond_labeled`, to the labelled images, too.
    k_center: of the budget x `pool_factor` images that COD wants most, those whose features are furthest from each other (and from the labelled ones).

    What COD does in the first cycle is in codline/cyclic.py; where it wants the least moved, the weight of an image is how much less it moved than the one
    that moved most.
    """

    name: Literal["cod_diverse"] = "cod_diverse"
    form: Literal["unsure", "gradients", "seeding", "k_center"] = "unsure"
    power: PositiveFloat | None = None  # left out: 0.5 of unsure, 1 of the others
    sharpness: PositiveFloat = 4.0
    pool_factor: Annotated[float, Field(ge=1)] = 3.0
    beyond_labeled: bool = True

    def suited(self, task: str) -> None:
        """A gradient has no meaning for the mean over the pixels."""
        if task == "segmentation" and self.form in ("unsure", "gradients"):
            raise UserError(
                f"params.yaml: score.strategy.form: found {self.form!r}, which is not defined for segmentation; expected 'seeding' or 'k_center'"
            )

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        scores, features = self.cod(pool, rng), by_id(pool.ids, pool.features_ND)
        labeled = by_id(pool.known.ids, pool.known.features_MD)
        centres = labeled if self.beyond_labeled else labeled[:0]
        if self.form in ("unsure", "gradients"):
            probs = by_id(pool.ids, pool.outputs.probs_NC, "outputs")
            rows = self.by_gradients(self.weights(scores) * self.doubts(probs), gradients(probs, features), budget, rng)
        elif self.form == "seeding":
            rows = self.by_seeding(scores, features, centres, budget, rng)
        else:
            rows = self.by_k_center(scores, features, centres, budget)
        query: np.ndarray = np.sort(pool.ids)[rows]
        return query

    def cod(self, pool: Whole, rng: np.random.Generator) -> np.ndarray:
        other = self.other(pool.first_cycle)
        if other is None:
            return rng.random(len(pool.ids))
        moved = by_id(
            pool.ids, discrepancy(pool.outputs.of(self.outputs), pool.others[other].of(self.outputs)), "outputs"
        )
        return self.wanted(moved, pool.first_cycle)

    def weights(self, scores: np.ndarray) -> np.ndarray:
        weights = scores - min(0.0, scores.min())
        weighed: np.ndarray = (weights / (weights.max() or 1.0)) ** (
            self.power or (0.5 if self.form == "unsure" else 1.0)
        )
        return weighed

    def doubts(self, probs: np.ndarray) -> np.ndarray:
        if self.form != "unsure":
            return np.ones(len(probs))
        second, first = np.partition(probs, -2, axis=1)[:, -2:].T
        doubts: np.ndarray = (1 - (first - second)) ** self.sharpness
        return doubts

    def by_gradients(self, weights: np.ndarray, points: Points, budget: int, rng: np.random.Generator) -> np.ndarray:
        start = [int((points.lengths * weights).argmax())]
        return np.array([*start, *seeds(points, weights, budget - 1, rng, start)])

    def by_seeding(
        self, scores: np.ndarray, features: np.ndarray, centres: np.ndarray, budget: int, rng: np.random.Generator
    ) -> np.ndarray:
        points = Points.of(np.concatenate([features, centres]))
        return seeds(points, self.weights(scores), budget, rng, range(len(features), len(points)))

    def by_k_center(self, scores: np.ndarray, features: np.ndarray, centres: np.ndarray, budget: int) -> np.ndarray:
        """Without centres, the most wanted is the first."""
        top = np.argsort(-scores, kind="stable")[: round(self.pool_factor * budget)]
        start = top[: 0 if len(centres) else 1]
        rest = np.sort(top[len(start) :])
        points = Points.of(np.concatenate([features[rest], features[start], centres]))
        return np.concatenate([start, rest[k_center(points, len(rest), budget - len(start))]])
