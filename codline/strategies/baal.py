"""Heuristics of baal (Atighehchian, Branchaud-Charron and Lacoste, 2020), by their names there, on passes with dropout."""

import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from codline.acquisition.distances import finite
from codline.strategies.base import Pool, Strategy


class Baal(Strategy):
    """Dropout is that of `bald` and `mc_dropout`. All passes of a batch are held at once, as baal wants them. Of dense outputs it is the mean over the pixels.

    Margin and Certainty, of which baal wants the smallest, are turned round.
    """

    package: ClassVar[tuple[str, str] | None] = ("baal", "baal>=2")
    name: Literal["baal"] = "baal"
    heuristic: Literal["BALD", "Variance", "Entropy", "Margin", "Certainty"] = "BALD"
    passes: int = Field(default=25, ge=2)
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def stochastic(self) -> tuple[int, float]:
        return self.passes, self.dropout

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        heuristic = getattr(library(), self.heuristic)(reduction="mean")
        if not len(pool.ids):
            return np.empty(0)
        probs_NCT = np.stack([finite(pool.ids, probs_NC, "outputs") for probs_NC in pool.samples], axis=-1)
        probs_NCT = np.minimum(
            probs_NCT, 1
        )  # a single value above it, by rounding, and baal takes all of the batch for logits
        found: np.ndarray = heuristic.get_uncertainties(probs_NCT)
        return found if heuristic.reversed else -found


def library() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the logger that it sets up
        import baal.active.heuristics
    return baal.active.heuristics
