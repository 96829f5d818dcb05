"""What every acquisition strategy is: a frozen object that gives each unlabelled image a score, higher meaning more wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from codline.params import Section

Other = str | int  # a model to compare with: "previous", "average", "independent", or the weights so many steps before the end of this training


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

    @property
    def probs_NC(self) -> np.ndarray:  # noqa: N802 (shape suffix)
        return self.outputs.probs_NC


class Strategy(Section):
    """Fields are the strategy's own parameters; data comes to the method."""

    def needs(self, first_cycle: bool) -> frozenset[Other]:
        """The other models whose outputs the pool must hold; they cost a forward pass each, but for `previous`, which is kept."""
        return frozenset()

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        """One score per image. Called on stretches in id order with one generator, so that the stretches' sizes do not matter."""
        raise NotImplementedError
