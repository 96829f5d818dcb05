"""What a strategy that trains a network of its own is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LearnerContext:
    """What a strategy that trains a network of its own works with. Tensors are torch's; those who learn import it."""

    images: Callable[[np.ndarray], Any]  # ids -> standardised images on the device
    device: Any
    seed: int
    advance: Callable[[int, int], None]  # steps done, of so many
