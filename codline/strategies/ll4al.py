"""Learning loss (Yoo and Kweon, 2019): the images whose loss the module beside the network foretells to be largest."""

from typing import ClassVar, Literal

import numpy as np

from codline.strategies.base import Pool, Strategy


class Ll4al(Strategy):
    """Yoo, Kweon: Learning Loss for Active Learning (CVPR 2019). The objective of the same name trains the module; score.subset is the paper's subset."""

    predicted: ClassVar[bool] = True
    name: Literal["ll4al"] = "ll4al"

    def scores(self, pool: Pool, rng: np.random.Generator) -> np.ndarray:
        assert pool.predicted is not None
        return pool.predicted.astype(np.float64)
