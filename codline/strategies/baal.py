"""Heuristics of the library baal (Atighehchian et al., 2020) on dropout passes, by their names there."""

import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from codline.acquisition.features import check_finite
from codline.strategies.base import PoolChunk, Strategy


class Baal(Strategy):
    """Dropout is applied as in `feature_dropout`. baal needs all passes of a batch in memory at once.

    Scores of Margin and Certainty, where baal prefers small values, are negated. Segmentation: mean over the pixels.
    """

    package: ClassVar[tuple[str, str] | None] = ("baal", "baal>=2")
    name: Literal["baal"] = "baal"
    heuristic: Literal["BALD", "Variance", "Entropy", "Margin", "Certainty"] = "BALD"
    passes: int = Field(default=25, ge=2)
    dropout: float = Field(default=0.5, gt=0, lt=1)

    def dropout_passes(self) -> tuple[int, float | None]:
        return self.passes, self.dropout

    def scores(self, chunk: PoolChunk, rng: np.random.Generator) -> np.ndarray:
        heuristic = getattr(import_heuristics(), self.heuristic)(reduction="mean")
        if not len(chunk.ids):
            return np.empty(0)
        passes = [check_finite(chunk.ids, probs_NC, "outputs") for probs_NC in chunk.dropout_probs]
        # If a single value exceeds 1 by rounding, baal takes the whole batch for logits.
        uncertainties: np.ndarray = heuristic.get_uncertainties(np.minimum(np.stack(passes, axis=-1), 1))
        return uncertainties if heuristic.reversed else -uncertainties


def import_heuristics() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of baal's logger
        import baal.active.heuristics
    return baal.active.heuristics
