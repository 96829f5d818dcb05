"""Top: the highest scores."""

from typing import Literal

import numpy as np

from codline.pickers.base import Candidates, Picker


class Top(Picker):
    name: Literal["top"] = "top"

    def keys(self, candidates: Candidates, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (candidates.scores,)
