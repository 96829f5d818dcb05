"""Images, device and seed for strategies that train a network of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LearnerContext:
    """Tensors are typed Any so that strategies that train nothing do not import torch."""

    images: Callable[[np.ndarray], Any]  # ids -> standardized images on the device
    device: Any
    seed: int
    advance: Callable[[int, int], None]  # reports progress: steps done, steps in total
