"""The paper's unsupervised loss: the squared output discrepancy to an exponential moving average of the weights."""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from codline.objectives.base import Companion, Objective


class Ema(Objective):
    name: Literal["ema"] = "ema"
    weight: float = Field(default=0.05, ge=0)
    decay: float = Field(default=0.999, ge=0, lt=1)
    outputs: Literal["probs", "logits"] = "probs"

    def companion(self, network: nn.Module) -> Companion:
        return Average(network, self.decay)

    def loss(self, logits: Tensor, companion_logits: Tensor) -> Tensor:
        """Sum over classes, mean over images, times the weight."""
        ours, theirs = (logits, companion_logits) if self.outputs == "logits" else (logits.softmax(1), companion_logits.softmax(1))
        return self.weight * (ours - theirs.detach()).square().sum(1).mean()


class Average(Companion):
    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        self.average = AveragedModel(network, avg_fn=slowing(decay))

    def update(self, network: nn.Module) -> None:
        self.average.update_parameters(network)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """In training mode: parameters are averaged, batch-norm statistics come from the batch, as in the released code."""
        self.average.train()
        logits: Tensor = self.average(images)
        return logits


def slowing(decay: float) -> Callable[[Tensor, Tensor, Tensor | int], Tensor]:
    """A plain average of the first steps that turns into a moving one: without it the untrained weights linger for 1/(1-decay) steps."""

    def average(averaged: Tensor, current: Tensor, steps: Tensor | int) -> Tensor:
        return torch.lerp(current, averaged, min(decay, 1 - 1 / (int(steps) + 1)))

    return average
