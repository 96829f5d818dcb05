"""Top: the highest scores."""

from typing import Literal

import numpy as np

from codline.pickers.base import CandidateChunk, Picker


class Top(Picker):
    name: Literal["top"] = "top"

    def sort_keys(self, chunk: CandidateChunk, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (chunk.scores,)
