"""What the score stage compares: which images, seen how, by which networks."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from codline import companions, outputs
from codline.augment import Augment
from codline.inference import View
from codline.models.base import Network
from codline.params import amount
from codline.strategies.base import Other, Outputs


def networks(needs: Iterable[Other], beside: dict[str, Tensor], previous: Network, untrained: Callable[[], Network]) -> dict[Other, Network]:
    """The networks that a strategy compares this cycle's with. `beside` is what training kept, `untrained` makes an independent network."""
    known: dict[Other, Callable[[], Network]] = {"previous": lambda: previous, "independent": untrained}
    return {name: known[name]() if name in known else companions.filled(untrained(), name, beside) for name in sorted(needs, key=str)}


def subset(ids: np.ndarray, size: float | None, rng: np.random.Generator) -> np.ndarray:
    """So many of the ids, or such a share of them, drawn at random; all if there is no size."""
    return ids if size is None else np.sort(rng.choice(ids, min(amount(size, len(ids)), len(ids)), replace=False))


def view(augment: Augment | None, seed: int) -> View | None:
    generator = torch.Generator().manual_seed(seed)
    return None if augment is None else lambda images: augment(images, generator)


def said(logits_nC: np.ndarray) -> Outputs:
    return Outputs(logits_nC, outputs.softmax(logits_nC))
