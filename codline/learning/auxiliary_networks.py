"""auxiliary.safetensors: what training keeps next to the model, for scoring and for the next cycle.

It holds the states of the objectives' auxiliary modules (a teacher, a second head, a loss predictor), snapshots, the
members of the committee, and the number of steps. Tensors are named `objective.<name of the objective>.<key>`,
`snapshot.<steps before the end>.<key>`, `member.<number>.network.<key>`, `member.<number>.objective.<...>` and
`steps.total`.
"""

from pathlib import Path

from torch import Tensor

from codline.learning.auxiliary_requirements import is_member, require_auxiliary_network, require_loss_predictor
from codline.learning.model_file import read_tensors, tensors_under, write_tensors
from codline.models.networks.loss_predictor import LossPredictor, predictor_from_tensors
from codline.models.networks.network import Network

# Prefixes of tensor names, in this file and in a training's state.
OBJECTIVE, SNAPSHOT, MEMBER, STEPS = "objective", "snapshot", "member", "steps"


def write_auxiliary(path: Path, cycle: str, tensors: dict[str, Tensor]) -> None:
    """Write those tensors of a training's final state that are used after it."""
    groups = (OBJECTIVE, SNAPSHOT, MEMBER, STEPS)
    auxiliary = {key: value for key, value in tensors.items() if key.partition(".")[0] in groups}
    write_tensors(path, auxiliary, {"cycle": cycle})


def read_auxiliary(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0]


def objective_states(auxiliary: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """{name of an objective: state dict of its auxiliary module}, for those that had one."""
    tensors = tensors_under(OBJECTIVE, auxiliary)
    names = {key.partition(".")[0] for key in tensors}
    return {name: tensors_under(name, tensors) for name in names}


def snapshot_steps(auxiliary: dict[str, Tensor]) -> list[int]:
    """For each snapshot, the number of steps before the end of training at which it was taken."""
    return sorted({int(key.split(".")[0]) for key in tensors_under(SNAPSHOT, auxiliary)})


def training_steps(auxiliary: dict[str, Tensor]) -> int:
    """Number of steps of the training."""
    return int(auxiliary[f"{STEPS}.total"])


def count_members(auxiliary: dict[str, Tensor]) -> int:
    return len({key.split(".")[0] for key in tensors_under(MEMBER, auxiliary)})


def load_loss_predictor(auxiliary: dict[str, Tensor]) -> LossPredictor:
    weights = tensors_under(f"{OBJECTIVE}.ll4al.predictor", auxiliary)
    require_loss_predictor(bool(weights))
    return predictor_from_tensors(weights)


def load_auxiliary_network(network: Network, name: str | int, auxiliary: dict[str, Tensor]) -> Network:
    """Load the moving average ("average"), a member ("member.1"), or the snapshot `name` steps before the end."""
    prefix = f"{OBJECTIVE}.ema.average.module" if name == "average" else f"{SNAPSHOT}.{name}"
    weights = tensors_under(f"{name}.network" if is_member(name) else prefix, auxiliary)
    require_auxiliary_network(name, bool(weights), snapshot_steps(auxiliary), count_members(auxiliary))
    network.load_state_dict(weights)
    return network
