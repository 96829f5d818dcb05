"""auxiliary.safetensors: what training keeps beside the model, for scoring and for the next cycle: an average, a head, what foretells losses, snapshots."""

from pathlib import Path

from torch import Tensor

from codline.core.errors import UserError
from codline.learning.model_file import read_tensors, write_tensors
from codline.models.base import Network
from codline.objectives.loss_predictor import LossPredictor, loaded

KINDS = ("companion", "snapshot")


def write(path: Path, cycle: str, tensors: dict[str, Tensor]) -> None:
    """Of a training's state, what outlasts it."""
    kept = {key: value for key, value in tensors.items() if key.partition(".")[0] in KINDS}
    write_tensors(path, kept, {"cycle": cycle})


def read(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0]


def snapshots(tensors: dict[str, Tensor]) -> list[int]:
    """How many steps before the end of training the kept weights are."""
    return sorted({int(key.split(".")[1]) for key in tensors if key.startswith("snapshot.")})


def of_objective(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the objective of the last cycle left."""
    return {key.removeprefix("companion."): value for key, value in tensors.items() if key.startswith("companion.")}


def predictor(beside: dict[str, Tensor]) -> LossPredictor:
    """What learned to foretell losses."""
    kept = {
        key.removeprefix("predictor."): value
        for key, value in of_objective(beside).items()
        if key.startswith("predictor.")
    }
    predictable(bool(kept))
    return loaded(kept)


def predictable(learned: bool) -> None:
    if not learned:
        expected = "expected train.objective {name: ll4al, ...}, which learns to foretell them"
        raise UserError(f"params.yaml: score.strategy: it looks at losses foretold beside the network; {expected}")


def filled(network: Network, name: str | int, beside: dict[str, Tensor]) -> Network:
    """The moving average, or the weights so many steps before the end."""
    prefix = "companion.average.module." if name == "average" else f"snapshot.{name}."
    weights = {key.removeprefix(prefix): value for key, value in beside.items() if key.startswith(prefix)}
    available(name, bool(weights), snapshots(beside))
    network.load_state_dict(weights)
    return network


def available(name: str | int, average: bool, kept: list[int]) -> None:
    """Refuse a model that training does not keep."""
    if name == "average" and not average:
        raise UserError(
            "params.yaml: score.strategy: emaod compares with a moving average; expected train.objective {name: ema, ...}, which keeps one"
        )
    if isinstance(name, int) and name not in kept:
        there = ", ".join(map(str, kept)) or "none"
        raise UserError(
            f"params.yaml: score.strategy: found {name} steps before the end, but train.snapshots keeps {there}; expected one of them"
        )
