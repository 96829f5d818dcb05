"""The teacher of the objective ema: a moving average of the network's weights."""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from codline.models.networks.network import Network
from codline.objectives.base import TrainingBatch, TrainingContext
from codline.objectives.modules.base import AuxiliaryModule
from codline.objectives.modules.moving_average import MovingAverage

if TYPE_CHECKING:
    from codline.objectives.ema import EmaObjective


class Teacher(AuxiliaryModule):
    """`average` and `second` (the second head) name tensors in auxiliary.safetensors."""

    def __init__(self, network: Network, objective: "EmaObjective", context: TrainingContext) -> None:
        super().__init__()
        self.objective, self.has_loss = objective, objective.weight > 0
        self.average = MovingAverage(
            network,
            objective.decay_over(context.steps),
            warm_up=objective.warm_up,
            averages_buffers=objective.buffers == "averaged",
        )
        if objective.start == "independent" and context.make_independent is not None:
            self.average.start_from(context.make_independent())
        self.average.requires_grad_(False)
        self.second = reinitialized_copy(network.head) if objective.heads == 2 else None

    def trainable_parameters(self) -> Iterable[nn.Parameter]:
        return self.second.parameters() if self.second is not None else ()

    def update(self, network: Network) -> None:
        self.average.update(network)

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        distance, weight = self.objective.distance, self.objective.weight
        if self.second is None:
            return weight * unlabeled.image_weight * distance(unlabeled.logits, self.logits(unlabeled.images))
        pairs = [(batch, self.second(batch.features).float()) for batch in (labeled, unlabeled)]
        zero = torch.zeros(())
        to_second = sum((batch.image_weight * distance(batch.logits, second) for batch, second in pairs), zero)
        to_teacher = sum(
            (batch.image_weight * distance(second, self.logits(batch.images)) for batch, second in pairs), zero
        )
        return weight * (to_second + to_teacher)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        self.average.train(self.objective.buffers == "batch")
        logits: Tensor = self.average(images).float()
        return logits


def reinitialized_copy(head: nn.Module) -> nn.Module:
    """A head of the same architecture with newly drawn weights."""
    second = copy.deepcopy(head)
    for module in second.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.reset_parameters()
    return second
