"""What every acquisition strategy is: a frozen object that gives each unlabelled image a score, higher meaning more wanted, or chooses the whole query."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import ClassVar, Literal

import numpy as np

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import UserError
from codline.core.params import Section, tag

Other = (
    str | int
)  # a model to compare with: "previous", "average", "independent", or the weights so many steps before the end of this training


@dataclass(frozen=True)
class Outputs:
    """What a model says of N images and C classes; dense outputs have two axes more."""

    logits_NC: np.ndarray
    probs_NC: np.ndarray

    def of(self, kind: Literal["probs", "logits"]) -> np.ndarray:
        return self.probs_NC if kind == "probs" else self.logits_NC.astype(np.float64)


@dataclass(frozen=True)
class Pool:
    """A stretch of the unlabelled pool, rows aligned."""

    ids: np.ndarray
    outputs: Outputs  # of this cycle's model
    others: Mapping[Other, Outputs] = field(default_factory=dict)  # those that the strategy needs
    first_cycle: bool = False
    samples: Iterator[np.ndarray] = field(
        default_factory=lambda: iter(())
    )  # probabilities of the stochastic passes asked for, one pass after the other
    predicted: np.ndarray | None = None  # losses foretold, where the strategy asks for them
    truth: np.ndarray | None = (
        None  # the answers: class numbers, or masks of the pixels that the outputs have; for the control that is made of them
    )

    @property
    def probs_NC(self) -> np.ndarray:  # noqa: N802 (shape suffix)
        return self.outputs.probs_NC


@dataclass(frozen=True)
class Known:
    """The labelled images."""

    ids: np.ndarray
    labels: np.ndarray
    features_MD: np.ndarray
    predicted: np.ndarray | None = None  # losses foretold, where the strategy asks for them


@dataclass(frozen=True)
class Whole:
    """All of the unlabelled pool at once, rows aligned."""

    ids: np.ndarray
    outputs: Outputs
    features_ND: np.ndarray  # before the head, float32; of dense ones the mean over the pixels
    known: Known
    bench: LearnerContext
    others: Mapping[Other, Outputs] = field(default_factory=dict)
    first_cycle: bool = False
    predicted: np.ndarray | None = None  # losses foretold, where the strategy asks for them


class Strategy(Section):
    """Fields are the strategy's own parameters; data comes to the method."""

    dense: ClassVar[bool] = True  # whether it is defined for segmentation, too
    package: ClassVar[tuple[str, str] | None] = (
        None  # a module, and what to install for it, besides codline's own dependencies
    )
    predicted: ClassVar[bool] = False  # whether it asks for the losses that a module beside the network foretells
    truth: ClassVar[bool] = False  # whether it is told the answers: a control, of simulated campaigns alone

    def suited(self, task: str) -> None:
        if task == "segmentation" and not self.dense:
            raise UserError(
                f"params.yaml: score.strategy.name: found {tag(type(self))!r}, which is not defined for segmentation"
            )

    def installed(self) -> None:
        if self.package is not None and find_spec(self.package[0]) is None:
            raise UserError(
                f"params.yaml: score.strategy.name: found {tag(type(self))!r}, which needs {self.package[1]}; it is not installed"
            )

    def stochastic(self) -> tuple[int, float]:
        """How many passes with dropout the pool must hold, and what share of the features they leave out."""
        return 0, 0.0

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        """The other models whose outputs the pool must hold; they cost a forward pass each, but for `previous`, which is kept."""
        return frozenset()

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        """One score per image. Called on stretches in id order with one generator, so that the stretches' sizes do not matter."""
        raise NotImplementedError


class Chooser(Strategy):
    """What is worth asking depends on what else is asked: it sees the whole pool and chooses a whole query."""

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        """So many distinct ids of the pool, the most wanted first."""
        raise NotImplementedError
