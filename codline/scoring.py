"""What the score stage compares: which images, seen how, by which networks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from codline import companions, outputs
from codline.augment import Augment
from codline.inference import View
from codline.models.base import Network
from codline.params import amount
from codline.rows import Rows
from codline.strategies.base import Other, Outputs, Pool, Strategy


@dataclass(frozen=True)
class Seen:
    """How a strategy gets to see what the networks say."""

    strategy: Strategy
    chosen: np.ndarray  # ids that can be asked for
    others: tuple[Other, ...]  # whose logits come with this cycle's, in this order
    kept: Rows | None  # the last cycle's outputs, unless they are among the others
    first_cycle: bool

    def scores(self, ids: np.ndarray, logits: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        rows = np.isin(ids, self.chosen, assume_unique=True)
        ours, *theirs = (said(each[rows]) for each in logits)
        beside = dict(zip(self.others, theirs, strict=True))
        if self.kept is not None and "previous" in self.strategy.needs(self.first_cycle):
            beside["previous"] = said(self.kept.take(ids[rows]))
        return self.strategy.scores(Pool(ids[rows], ours, beside, self.first_cycle), rng)


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
