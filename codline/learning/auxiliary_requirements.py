"""Refuses strategies that need networks which training does not keep; known from params.yaml or from a file."""

from collections.abc import Sequence

from codline.core.errors import UserError


def require_loss_predictor(is_trained: bool) -> None:
    if not is_trained:
        raise UserError(
            "params.yaml: score.strategy: it needs predicted losses; "
            "expected {name: ll4al} among train.objectives, which learns to predict them"
        )


def is_member(name: str | int) -> bool:
    """Whether it names a member of the committee: "member.1" and so on."""
    return isinstance(name, str) and name.startswith("member.")


def require_auxiliary_network(name: str | int, has_average: bool, snapshots: Sequence[float], members: int) -> None:
    """Refuse a network that training does not keep."""
    if name == "average" and not has_average:
        raise UserError(
            "params.yaml: score.strategy: emaod compares with a moving average; "
            "expected {name: ema} among train.objectives, which keeps one"
        )
    if isinstance(name, str) and is_member(name) and int(name.partition(".")[2]) > members:
        raise UserError(
            f"params.yaml: train.committee: found {members}, expected at least as many as score.strategy.members; "
            "the strategy snapshot_committee needs none"
        )
    if isinstance(name, int) and name not in snapshots:
        available = ", ".join(map(str, snapshots)) or "none"
        raise UserError(
            f"params.yaml: score.strategy: found {name} steps before the end, "
            f"but train.snapshots keeps {available}; expected one of them"
        )
