"""Pool strategies of the library scikit-activeml (Kottke et al., 2021), by their names there."""

import warnings
from inspect import signature
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from codline.acquisition.distances import fill_randomly
from codline.acquisition.features import sort_by_id
from codline.core.errors import CodlineError, UserError
from codline.core.params_errors import suggestion
from codline.strategies.base import BatchStrategy, PoolFeatures, PoolSize

Query = Literal[
    "Badge",
    "Clue",
    "CoreSet",
    "CostEmbeddingAL",
    "DiscriminativeAL",
    "Falcun",
    "GreedySamplingX",
    "MaxHerding",
    "ProbCover",
    "Quire",
    "RandomSampling",
    "TypiClust",
    "UncertaintySampling",
]


class ScikitActiveml(BatchStrategy):
    """The strategies see all features, the known labels, and this cycle's probabilities for the unlabeled images.

    Left out are strategies that retrain the model per image, query synthetic images, need a committee, or are for
    regression. Where one returns an image twice, the rest is drawn uniformly. The discriminator of DiscriminativeAL is
    a logistic regression.
    """

    dense: ClassVar[bool] = False
    package: ClassVar[tuple[str, str] | None] = ("skactiveml", "scikit-activeml>=1")
    feature_copies: ClassVar[float] = 6
    output_copies: ClassVar[float] = 2
    name: Literal["scikit_activeml"] = "scikit_activeml"
    query: Query
    settings: dict[str, Any] = Field(default={})  # arguments of the constructor in scikit-activeml

    @field_validator("settings")
    @classmethod
    def check_reserved(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if settings.keys() & {"random_state", "missing_label"}:
            raise ValueError("neither random_state, which follows from the campaign's seed, nor missing_label")
        return settings

    def working_bytes(self, size: PoolSize) -> float:
        """These compare all pairs of images, or hold a gradient for every class."""
        columns = {"ProbCover": size.rows, "MaxHerding": size.rows, "Quire": size.rows}
        columns |= {"Badge": size.outputs * size.features, "RandomSampling": 0, "UncertaintySampling": 0}
        return super().working_bytes(size) + 8 * size.rows * columns.get(self.query, size.budget)

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        from threadpoolctl import threadpool_limits

        features = sort_by_id(pool.ids, pool.features_ND)
        all_features = np.concatenate([features, sort_by_id(pool.labeled.ids, pool.labeled.features_MD)])
        labels = np.concatenate([np.full(len(features), np.nan), pool.labeled.labels[np.argsort(pool.labeled.ids)]])
        strategy = self.build(int(rng.integers(1 << 31)), pool.outputs.probs_NC.shape[1], len(labels))
        arguments = self.query_arguments(strategy, features, pool)
        # In one thread, because several add up in the order in which they finish.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # such as empty clusters, which do not prevent a query
            try:
                selected = strategy.query(all_features.astype(np.float64), labels, batch_size=budget, **arguments)
            except Exception as error:
                message = " ".join(str(error).split())
                raise CodlineError(f"score.strategy: {self.query} of scikit-activeml failed: {message}") from error
        distinct = list(dict.fromkeys(int(row) for row in selected))
        remaining = np.setdiff1d(np.arange(len(features)), distinct)
        query: np.ndarray = np.sort(pool.ids)[fill_randomly(distinct, remaining, budget, rng)]
        return query

    def build(self, seed: int, classes: int, images: int) -> Any:
        """The strategy object. Its cluster algorithm is seeded, too, which Clue does not do by itself."""
        kind = getattr(import_pool(), self.query)
        accepted = [name for name in signature(kind).parameters if name not in ("random_state", "missing_label")]
        for name in self.settings.keys() - set(accepted):
            raise UserError(
                f"params.yaml: score.strategy.settings.{name}: "
                f"unknown to {self.query} of scikit-activeml{suggestion(name, accepted)}"
            )
        defaults: dict[str, Any] = {
            "classes": list(range(max(2, classes))),  # classifiers there need two classes at least
            "n_classes": max(2, min(classes, images)),
            "cluster_algo_dict": {},
        }
        settings = {name: value for name, value in defaults.items() if name in accepted} | self.settings
        if isinstance(settings.get("cluster_algo_dict"), dict):
            settings["cluster_algo_dict"] = {"random_state": seed, **settings["cluster_algo_dict"]}
        return kind(**settings, random_state=seed)

    def query_arguments(self, strategy: Any, features: np.ndarray, pool: PoolFeatures) -> dict[str, Any]:
        """Further arguments of the strategy's query(): a discriminator, or this cycle's model."""
        accepted = signature(strategy.query).parameters
        if "discriminator" in accepted:
            from skactiveml.classifier import SklearnClassifier
            from sklearn.linear_model import LogisticRegression

            return {"discriminator": SklearnClassifier(LogisticRegression())}
        for model, fit in (("clf", "fit_clf"), ("estimator", "fit_estimator")):
            if model in accepted:
                probs = sort_by_id(pool.ids, pool.outputs.probs_NC, "outputs")
                return {model: fixed_classifier(features, probs), fit: False}
        return {}


def import_pool() -> Any:
    import skactiveml.pool  # optional dependency, and takes a second

    return skactiveml.pool


def fixed_classifier(features_ND: np.ndarray, probs_NC: np.ndarray) -> Any:
    """This cycle's model as a scikit-activeml classifier that returns the given probabilities."""
    from skactiveml.base import SkactivemlClassifier

    # Margins need a second class, if only one of probability 0.
    probs = probs_NC if probs_NC.shape[1] > 1 else np.pad(probs_NC, ((0, 0), (0, 1)))

    class FixedClassifier(SkactivemlClassifier):  # type: ignore[misc]
        classes_ = np.arange(probs.shape[1])

        def fit(self, *_: Any) -> Any:
            raise AssertionError("the model is already trained")

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            assert np.array_equal(X, features_ND), "probabilities are known for the whole unlabeled pool only"
            return probs.copy()

    return FixedClassifier()
