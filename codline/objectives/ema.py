"""The paper's unsupervised loss: the squared output discrepancy to an exponential moving average of the weights."""

import copy
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from codline.models.base import Network
from codline.objectives.base import Batch, Beside, Companion, Discrepant

Tensors = tuple[Tensor, ...] | list[Tensor]


class Ema(Discrepant):
    """The defaults are the paper's where it says something; docs/method.md has the released code's beside them."""

    name: Literal["ema"] = "ema"
    decay: float = Field(default=0.999, ge=0, lt=1)
    warm_up: bool = True  # a plain average of the first steps that turns into a moving one
    buffers: Literal["batch", "averaged"] = (
        "batch"  # the average's normalisation: by the batch that it sees, or by averaged statistics
    )
    start: Literal["copy", "independent"] = (
        "copy"  # of the average: the network's weights, or another untrained network's
    )
    persists: bool = False  # whether the average of the last cycle is carried on
    heads: Literal[1, 2] = (
        1  # 2: a second head is pulled to the average, the first head to the second, on labelled images too
    )
    fixed_first_batch: bool = (
        False  # a fault of the released code: the same unlabelled images in every step of the first cycle
    )

    def companion(self, network: Network, beside: Beside) -> "Average":
        companion = Average(network, self, beside)
        if self.persists and beside.kept:
            companion.load_state_dict(dict(beside.kept))
        return companion

    def repeats_first_batch(self) -> bool:
        return self.fixed_first_batch


class Average(Companion):
    def __init__(self, network: Network, objective: Ema, beside: Beside) -> None:
        super().__init__()
        self.objective, self.active = objective, objective.weight > 0
        self.average = AveragedModel(
            network,
            multi_avg_fn=moving(objective.decay, objective.warm_up),
            use_buffers=objective.buffers == "averaged",
        )
        if objective.start == "independent" and beside.independent is not None:
            self.average.module.load_state_dict(beside.independent().state_dict())
            self.average.n_averaged.fill_(1)  # or the first update would take the network's weights as they are
        self.average.requires_grad_(False)
        self.second = another(network.head) if objective.heads == 2 else None

    def trained(self) -> Iterable[nn.Parameter]:
        return self.second.parameters() if self.second is not None else ()

    def update(self, network: Network) -> None:
        self.average.update_parameters(network)

    def loss(self, labeled: Batch, unlabeled: Batch) -> Tensor:
        objective, batches = self.objective, [labeled, unlabeled]
        if self.second is None:
            return objective.weight * objective.distance(unlabeled.logits, self.logits(unlabeled.images))
        seconds = [self.second(batch.features).float() for batch in batches]
        own = sum(
            (objective.distance(batch.logits, second) for batch, second in zip(batches, seconds, strict=True)),
            torch.zeros(()),
        )
        pulled = sum(
            (
                objective.distance(second, self.logits(batch.images))
                for batch, second in zip(batches, seconds, strict=True)
            ),
            torch.zeros(()),
        )
        return objective.weight * (own + pulled)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        self.average.train(self.objective.buffers == "batch")
        logits: Tensor = self.average(images).float()
        return logits


def another(head: nn.Module) -> nn.Module:
    """A head of the same form with weights of its own."""
    second = copy.deepcopy(head)
    for module in second.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.reset_parameters()
    return second


def moving(decay: float, warm_up: bool) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """Without the warm-up the first weights linger for 1/(1-decay) steps. In place, all tensors of a kind at once: a GPU is asked for the count once."""

    def average(averaged: Tensors, current: Tensors, steps: Tensor | int) -> None:
        weight = min(decay, 1 - 1 / (int(steps) + 1)) if warm_up else decay
        for mean, now in zip(averaged, current, strict=True):
            if mean.is_floating_point():
                torch.lerp(now, mean, weight, out=mean)
            else:  # counters among the buffers
                mean.copy_(now)

    return average
