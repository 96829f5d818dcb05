"""Base classes of acquisition strategies: frozen objects that score each unlabeled image, or select a whole query."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import ClassVar, Literal

import numpy as np

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import UserError
from codline.core.params import Section
from codline.core.params_errors import plugin_name

# A model to compare outputs with: "previous" (cycle), "average" (of the weights), "independent" (untrained),
# or an int: this model as it was that many steps before the end of its training.
ReferenceName = str | int


@dataclass(frozen=True)
class Outputs:
    """A model's outputs for N images and C classes: (N, C), or (N, C, H, W) for segmentation."""

    logits_NC: np.ndarray
    probs_NC: np.ndarray

    def values(self, kind: Literal["probs", "logits"]) -> np.ndarray:
        return self.probs_NC if kind == "probs" else self.logits_NC.astype(np.float64)


@dataclass(frozen=True)
class PoolChunk:
    """Some rows of the unlabeled pool. Optional fields are filled if the strategy declares that it needs them."""

    ids: np.ndarray
    outputs: Outputs  # of this cycle's model
    references: Mapping[ReferenceName, Outputs] = field(default_factory=dict)
    first_cycle: bool = False
    # Probabilities of the dropout passes, one pass at a time.
    dropout_probs: Iterator[np.ndarray] = field(default_factory=lambda: iter(()))
    predicted_losses: np.ndarray | None = None
    true_labels: np.ndarray | None = None  # class numbers, or masks of the pixels that the outputs have

    @property
    def probs_NC(self) -> np.ndarray:  # noqa: N802 (shape suffix)
        return self.outputs.probs_NC


@dataclass(frozen=True)
class LabeledFeatures:
    """The M labeled images, rows aligned."""

    ids: np.ndarray
    labels: np.ndarray
    features_MD: np.ndarray
    predicted_losses: np.ndarray | None = None


@dataclass(frozen=True)
class PoolFeatures:
    """The whole unlabeled pool (N images) with features, and the labeled images. Optional fields as in PoolChunk."""

    ids: np.ndarray
    outputs: Outputs
    features_ND: np.ndarray  # inputs of the head, float32; for segmentation their mean over the pixels
    labeled: LabeledFeatures
    context: LearnerContext
    references: Mapping[ReferenceName, Outputs] = field(default_factory=dict)
    first_cycle: bool = False
    predicted_losses: np.ndarray | None = None


@dataclass(frozen=True)
class PoolSize:
    """What decides how much memory a strategy takes that selects whole queries."""

    images: int
    labeled: int
    features: int  # numbers per image
    outputs: int  # numbers per image and model: classes, times stored pixels
    budget: int

    @property
    def rows(self) -> int:
        return self.images + self.labeled


class Strategy(Section):
    """Scores images one by one. Its fields are its parameters in params.yaml; data is passed to the methods."""

    dense: ClassVar[bool] = True  # defined for segmentation, too
    package: ClassVar[tuple[str, str] | None] = None  # optional dependency: (module, what to install)
    uses_predicted_losses: ClassVar[bool] = False
    uses_true_labels: ClassVar[bool] = False  # oracle baselines, for simulated campaigns only

    def check_task(self, task: str) -> None:
        if task == "segmentation" and not self.dense:
            found = f"found {plugin_name(type(self))!r}, which is not defined for segmentation"
            raise UserError(f"params.yaml: score.strategy.name: {found}")

    def check_installed(self) -> None:
        if self.package is not None and find_spec(self.package[0]) is None:
            found = f"found {plugin_name(type(self))!r}, which needs {self.package[1]}; it is not installed"
            raise UserError(f"params.yaml: score.strategy.name: {found}")

    def check_dropout(self, rate: float) -> None:
        """Refuse a model without a dropout layer if the strategy uses it. `rate` is the model's."""
        passes, own_rate = self.dropout_passes()
        if passes and own_rate is None and not rate:
            found = f"found {plugin_name(type(self))!r}, but the model is trained without dropout"
            expected = "expected prepare.model.dropout above 0, or the strategy feature_dropout, which needs none"
            raise UserError(f"params.yaml: score.strategy.name: {found}; {expected}")

    def check_truth(self, table: str) -> None:
        """Allow the table of true labels, "oracle", to oracle baselines only."""
        if self.uses_true_labels and table == "pool":
            raise ValueError(f"oracle: {plugin_name(type(self))} needs the true labels, and the pool has none")
        if not self.uses_true_labels and table == "oracle":
            raise ValueError(f"pool: {plugin_name(type(self))} must not see the true labels")

    def dropout_passes(self) -> tuple[int, float | None]:
        """Number of forward passes with dropout on the features, and its rate; None: the rate of the model's layer."""
        return 0, None

    def reference_models(self, first_cycle: bool) -> frozenset[ReferenceName]:
        """Models whose outputs the strategy compares with. Each costs a forward pass, except `previous` (stored)."""
        return frozenset()

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        """One score per image; the highest are selected.

        Called with consecutive chunks in ascending id order and one generator: chunk sizes must not change scores.
        """
        raise NotImplementedError


class BatchStrategy(Strategy):
    """Selects a whole query at once, because the value of an image depends on which others are selected."""

    # What select_query holds at its peak besides its arguments: copies of all features (float32) and of this cycle's
    # probabilities (float64).
    feature_copies: ClassVar[float] = 3
    output_copies: ClassVar[float] = 0

    def working_bytes(self, size: PoolSize) -> float:
        """Memory that select_query takes besides its arguments: an estimate, which score refuses large pools by."""
        return size.rows * (4 * self.feature_copies * size.features + 8 * self.output_copies * size.outputs)

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        """`budget` distinct ids of the pool, best first."""
        raise NotImplementedError
