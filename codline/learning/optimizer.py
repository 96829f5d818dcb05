"""The optimizer of a training, and its moments in a checkpoint."""

from typing import Any

import torch
from torch import Tensor, nn

from codline.learning.recipe import Recipe


def make_optimizer(recipe: Recipe, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(parameters, recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay)


def optimizer_moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """As `<number of the parameter>.<key>`."""
    return {
        f"{i}.{key}": value
        for i, moments_of_parameter in optimizer.state_dict()["state"].items()
        for key, value in moments_of_parameter.items()
        if isinstance(value, Tensor)
    }


def restore_moments(optimizer: torch.optim.Optimizer, moments: dict[str, Tensor]) -> None:
    parameters = optimizer.param_groups[0]["params"]
    optimizer_state: dict[str, Any] = optimizer.state_dict() | {"state": {}}
    for name, value in moments.items():
        index, _, key = name.partition(".")
        parameter = parameters[int(index)]
        # The parameter's own memory format: with another one, sums differ in their last bits.
        # Adam's step count is a single number.
        moment = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
        optimizer_state["state"].setdefault(int(index), {})[key] = moment
    optimizer.load_state_dict(optimizer_state)
