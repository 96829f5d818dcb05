"""What the score stage compares: which images, seen how, by which networks."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from codline import companions, outputs
from codline.augment import Augment
from codline.errors import UserError
from codline.inference import View
from codline.models.base import Network
from codline.params import amount
from codline.strategies.base import Other, Outputs


def networks(needs: Iterable[Other], beside: dict[str, Tensor], previous: Network, untrained: Callable[[], Network]) -> dict[Other, Network]:
    """The networks that a strategy compares this cycle's with. `beside` is what training kept, `untrained` makes an independent network."""
    known: dict[Other, Callable[[], Network]] = {"previous": lambda: previous, "independent": untrained}
    return {name: known[name]() if name in known else filled(untrained(), name, beside) for name in sorted(needs, key=str)}


def filled(network: Network, name: Other, beside: dict[str, Tensor]) -> Network:
    """The moving average, or the weights so many steps before the end."""
    prefix = "companion.average.module." if name == "average" else f"snapshot.{name}."
    weights = {key.removeprefix(prefix): value for key, value in beside.items() if key.startswith(prefix)}
    available(name, bool(weights), companions.snapshots(beside))
    network.load_state_dict(weights)
    return network


def available(name: Other, average: bool, snapshots: list[int]) -> None:
    """Refuse a model that training does not keep."""
    if name == "average" and not average:
        raise UserError("params.yaml: score.strategy: emaod compares with a moving average; expected train.objective {name: ema, ...}, which keeps one")
    if isinstance(name, int) and name not in snapshots:
        kept = ", ".join(map(str, snapshots)) or "none"
        raise UserError(f"params.yaml: score.strategy.steps: found {name}, but train.snapshots keeps {kept}; expected one of them")


def subset(ids: np.ndarray, size: float | None, rng: np.random.Generator) -> np.ndarray:
    """So many of the ids, or such a share of them, drawn at random; all if there is no size."""
    return ids if size is None else np.sort(rng.choice(ids, min(amount(size, len(ids)), len(ids)), replace=False))


def view(augment: Augment | None, seed: int) -> View | None:
    generator = torch.Generator().manual_seed(seed)
    return None if augment is None else lambda images: augment(images, generator)


def said(logits_nC: np.ndarray) -> Outputs:
    return Outputs(logits_nC, outputs.softmax(logits_nC))
