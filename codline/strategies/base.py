"""What every acquisition strategy is: a frozen object that gives each unlabelled image a score, higher meaning more wanted."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codline.params import Section


@dataclass(frozen=True)
class Pool:
    """A stretch of the unlabelled pool, rows aligned. N images, C classes."""

    ids: np.ndarray
    probs_NC: np.ndarray
    previous_NC: np.ndarray  # probs of the model one cycle back; of the untrained model in the first cycle
    first_cycle: bool


class Strategy(Section):
    """Fields are the strategy's own parameters; data comes to the method."""

    needs: ClassVar[frozenset[str]] = frozenset({"probs"})

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        """One score per image. Called on stretches in id order with one generator, so that the stretches' sizes do not matter."""
        raise NotImplementedError
