"""Pool strategies of scikit-activeml (Kottke et al., 2021), by their names there."""

import warnings
from inspect import signature
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from codline.acquisition.distances import by_id, filled_up
from codline.core.errors import CodlineError, UserError
from codline.core.params import near
from codline.strategies.base import Chooser, Whole

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


class ScikitActiveml(Chooser):
    """They see the features of all images, labels where there are any, and this cycle's probabilities for the unlabelled.

    Left out are those that train the model again for each image, ask it about images of their own making, want a committee, or are for regression.
    Where one asks for an image twice, the rest is drawn evenly. DiscriminativeAL's discriminator is a logistic regression.
    """

    dense: ClassVar[bool] = False
    package: ClassVar[tuple[str, str] | None] = ("skactiveml", "scikit-activeml>=1")
    name: Literal["scikit_activeml"] = "scikit_activeml"
    query: Query
    settings: dict[str, Any] = Field(default={})  # of the strategy's constructor there

    @field_validator("settings")
    @classmethod
    def not_ours(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if settings.keys() & {"random_state", "missing_label"}:
            raise ValueError("neither random_state, which follows from the campaign's seed, nor missing_label")
        return settings

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        from threadpoolctl import threadpool_limits  # several threads add up in the order in which they finish

        features, labeled = by_id(pool.ids, pool.features_ND), by_id(pool.known.ids, pool.known.features_MD)
        labels = np.concatenate([np.full(len(features), np.nan), pool.known.labels[np.argsort(pool.known.ids)]])
        strategy = self.built(int(rng.integers(1 << 31)), pool.outputs.probs_NC.shape[1], len(labels))
        beside = self.beside(strategy, features, pool)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of clusters that stay empty and the like: a query comes out all the same
            try:
                found = strategy.query(
                    np.concatenate([features, labeled]).astype(np.float64), labels, batch_size=budget, **beside
                )
            except Exception as error:
                raise CodlineError(
                    f"score.strategy: {self.query} of scikit-activeml failed: {' '.join(str(error).split())}"
                ) from error
        rows = list(dict.fromkeys(int(row) for row in found))
        query: np.ndarray = np.sort(pool.ids)[
            filled_up(rows, np.setdiff1d(np.arange(len(features)), rows), budget, rng)
        ]
        return query

    def built(self, seed: int, classes: int, images: int) -> Any:
        """Clusters follow from the seed, too: Clue leaves them to chance. There are two classes at least, for there must be something to tell apart."""
        kind = getattr(library(), self.query)
        taken = [name for name in signature(kind).parameters if name not in ("random_state", "missing_label")]
        for name in self.settings.keys() - set(taken):
            raise UserError(
                f"params.yaml: score.strategy.settings.{name}: unknown to {self.query} of scikit-activeml{near(name, taken)}"
            )
        known = {
            "classes": list(range(max(2, classes))),
            "n_classes": max(2, min(classes, images)),
            "cluster_algo_dict": {},
        }
        settings = {**{name: value for name, value in known.items() if name in taken}, **self.settings}
        if isinstance(settings.get("cluster_algo_dict"), dict):
            settings["cluster_algo_dict"] = {"random_state": seed, **settings["cluster_algo_dict"]}
        return kind(**settings, random_state=seed)

    def beside(self, strategy: Any, features: np.ndarray, pool: Whole) -> dict[str, Any]:
        """What else its query wants to be given."""
        wanted = signature(strategy.query).parameters
        if "discriminator" in wanted:
            from skactiveml.classifier import SklearnClassifier
            from sklearn.linear_model import LogisticRegression

            return {"discriminator": SklearnClassifier(LogisticRegression())}
        for model, fit in (("clf", "fit_clf"), ("estimator", "fit_estimator")):
            if model in wanted:
                return {model: told(features, by_id(pool.ids, pool.outputs.probs_NC, "outputs")), fit: False}
        return {}


def library() -> Any:
    import skactiveml.pool  # a second, and an extra

    return skactiveml.pool


def told(features_ND: np.ndarray, probs_NC: np.ndarray) -> Any:
    """This cycle's model as a classifier of theirs, of which all is known that can be asked. Margins need a second class, if only an impossible one."""
    from skactiveml.base import SkactivemlClassifier

    probs = probs_NC if probs_NC.shape[1] > 1 else np.pad(probs_NC, ((0, 0), (0, 1)))

    class Told(SkactivemlClassifier):  # type: ignore[misc]
        classes_ = np.arange(probs.shape[1])

        def fit(self, *_: Any) -> Any:
            raise AssertionError("our model is trained already")

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            assert np.array_equal(X, features_ND), "only the unlabelled pool can be asked for, whole"
            return probs.copy()

    return Told()
