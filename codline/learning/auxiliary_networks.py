"""auxiliary.safetensors: what training keeps next to the model, for scoring and for the next cycle.

It holds the state of the objective's auxiliary module (a teacher, a second head, a loss predictor) and snapshots.
"""

from pathlib import Path

from torch import Tensor

from codline.core.errors import UserError
from codline.learning.model_file import read_tensors, tensors_under, write_tensors
from codline.models.base import LossPredictor, Network, predictor_from_tensors

# Prefixes of tensor names, in this file and in a training's state: of the objective's auxiliary module, of snapshots.
OBJECTIVE, SNAPSHOT = "companion", "snapshot"


def write_auxiliary(path: Path, cycle: str, tensors: dict[str, Tensor]) -> None:
    """Write those tensors of a training's final state that are used after it."""
    auxiliary = {key: value for key, value in tensors.items() if key.partition(".")[0] in (OBJECTIVE, SNAPSHOT)}
    write_tensors(path, auxiliary, {"cycle": cycle})


def read_auxiliary(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0]


def read_objective_state(path: Path) -> dict[str, Tensor]:
    """State dict of the objective's auxiliary module; empty if it had none."""
    return tensors_under(OBJECTIVE, read_auxiliary(path))


def snapshot_steps(auxiliary: dict[str, Tensor]) -> list[int]:
    """For each snapshot, the number of steps before the end of training at which it was taken."""
    return sorted({int(key.split(".")[0]) for key in tensors_under(SNAPSHOT, auxiliary)})


def load_loss_predictor(auxiliary: dict[str, Tensor]) -> LossPredictor:
    weights = tensors_under(f"{OBJECTIVE}.predictor", auxiliary)
    require_loss_predictor(bool(weights))
    return predictor_from_tensors(weights)


def require_loss_predictor(is_trained: bool) -> None:
    if not is_trained:
        raise UserError(
            "params.yaml: score.strategy: it needs predicted losses; "
            "expected train.objective {name: ll4al, ...}, which learns to predict them"
        )


def load_auxiliary_network(network: Network, name: str | int, auxiliary: dict[str, Tensor]) -> Network:
    """Load the weights of the moving average ("average"), or of the snapshot `name` steps before the end."""
    weights = tensors_under(f"{OBJECTIVE}.average.module" if name == "average" else f"{SNAPSHOT}.{name}", auxiliary)
    require_auxiliary_network(name, bool(weights), snapshot_steps(auxiliary))
    network.load_state_dict(weights)
    return network


def require_auxiliary_network(name: str | int, has_average: bool, snapshots: list[int]) -> None:
    """Refuse a network that training does not keep."""
    if name == "average" and not has_average:
        raise UserError(
            "params.yaml: score.strategy: emaod compares with a moving average; "
            "expected train.objective {name: ema, ...}, which keeps one"
        )
    if isinstance(name, int) and name not in snapshots:
        available = ", ".join(map(str, snapshots)) or "none"
        raise UserError(
            f"params.yaml: score.strategy: found {name} steps before the end, "
            f"but train.snapshots keeps {available}; expected one of them"
        )
