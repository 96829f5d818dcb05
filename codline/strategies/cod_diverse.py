"""COD with diversity (our own): images whose outputs changed much since the previous cycle, unlike each other."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from codline.acquisition.cod_rules import CodRules
from codline.acquisition.distances import Points, gradient_embeddings, k_means_plus_plus
from codline.acquisition.features import sort_by_id
from codline.acquisition.k_center import k_center
from codline.core.errors import UserError
from codline.strategies.base import BatchStrategy, PoolFeatures


class CodDiverse(CodRules, BatchStrategy):
    """Four forms:

    unsure: k-means++ on BADGE's gradient embeddings, weighted by COD^`power` x (1 - margin)^`sharpness`, where the
        margin is that of the two most probable classes.
    gradients: the same without the margin.
    seeding: k-means++ on the features, weighted by COD^`power`; with `beyond_labeled`, labeled images are centers.
    k_center: the budget x `pool_factor` images with the highest COD scores, then greedy k-center on their features
        (with `beyond_labeled`, labeled images are centers).

    codline/acquisition/cod_rules.py describes the other parameters. Where the first cycle prefers small
    discrepancies, an image's weight is the largest discrepancy of the pool minus its own.
    """

    output_copies: ClassVar[float] = 3
    name: Literal["cod_diverse"] = "cod_diverse"
    form: Literal["unsure", "gradients", "seeding", "k_center"] = "unsure"
    power: PositiveFloat | None = None  # default: 0.5 for unsure, 1 for the others
    sharpness: PositiveFloat = 4.0
    pool_factor: Annotated[float, Field(ge=1)] = 3.0
    beyond_labeled: bool = True

    def check_task(self, task: str) -> None:
        if task == "segmentation" and self.form in ("unsure", "gradients"):  # one gradient per pixel, not per image
            raise UserError(
                f"params.yaml: score.strategy.form: found {self.form!r}, which is not defined for segmentation; "
                "expected 'seeding' or 'k_center'"
            )

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        scores, features = self.pool_scores(pool, rng), sort_by_id(pool.ids, pool.features_ND)
        labeled = sort_by_id(pool.labeled.ids, pool.labeled.features_MD)
        centers = labeled if self.beyond_labeled else labeled[:0]
        if self.form in ("unsure", "gradients"):
            probs = sort_by_id(pool.ids, pool.outputs.probs_NC, "outputs")
            weights = self.weights(scores) * self.margin_weights(probs)
            rows = self.select_by_gradients(weights, gradient_embeddings(probs, features), budget, rng)
        elif self.form == "seeding":
            points = Points.from_rows(np.concatenate([features, centers]))
            rows = k_means_plus_plus(points, self.weights(scores), budget, rng, range(len(features), len(points)))
        else:
            rows = self.select_by_k_center(scores, features, centers, budget)
        query: np.ndarray = np.sort(pool.ids)[rows]
        return query

    def pool_scores(self, pool: PoolFeatures, rng: np.random.Generator) -> np.ndarray:
        """COD scores in ascending id order."""
        reference = self.reference_model(pool.first_cycle)
        models = [pool.outputs] if reference is None else [pool.outputs, pool.references[reference]]
        now, *before = (sort_by_id(pool.ids, model.values(self.outputs), "outputs") for model in models)
        return self.cod_scores(now, before[0] if before else None, pool.first_cycle, rng)

    def weights(self, scores: np.ndarray) -> np.ndarray:
        shifted = scores - min(0.0, scores.min())
        power = self.power or (0.5 if self.form == "unsure" else 1.0)
        weights: np.ndarray = (shifted / (shifted.max() or 1.0)) ** power
        return weights

    def margin_weights(self, probs: np.ndarray) -> np.ndarray:
        if self.form != "unsure":
            return np.ones(len(probs))
        second, first = np.partition(probs, -2, axis=1)[:, -2:].T
        weights: np.ndarray = (1 - (first - second)) ** self.sharpness
        return weights

    def select_by_gradients(
        self, weights: np.ndarray, gradients: Points, budget: int, rng: np.random.Generator
    ) -> np.ndarray:
        start = [int((gradients.squared_norms * weights).argmax())]
        return np.array([*start, *k_means_plus_plus(gradients, weights, budget - 1, rng, start)])

    def select_by_k_center(
        self, scores: np.ndarray, features: np.ndarray, centers: np.ndarray, budget: int
    ) -> np.ndarray:
        """Without centers, the image with the highest score is the first."""
        top = np.argsort(-scores, kind="stable")[: round(self.pool_factor * budget)]
        start = top[: 0 if len(centers) else 1]
        rest = np.sort(top[len(start) :])
        points = Points.from_rows(np.concatenate([features[rest], features[start], centers]))
        return np.concatenate([start, rest[k_center(points, len(rest), budget - len(start))]])
