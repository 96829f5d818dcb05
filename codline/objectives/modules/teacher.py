"""The teacher of the objective ema: a moving average of the network's weights."""

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from codline.models.networks.network import Network
from codline.objectives.base import TrainingBatch, TrainingContext
from codline.objectives.modules.base import AuxiliaryModule

if TYPE_CHECKING:
    from codline.objectives.ema import EmaObjective

Tensors = tuple[Tensor, ...] | list[Tensor]


class Teacher(AuxiliaryModule):
    """`average` and `second` (the second head) name tensors in auxiliary.safetensors."""

    def __init__(self, network: Network, objective: "EmaObjective", context: TrainingContext) -> None:
        super().__init__()
        self.objective, self.has_loss = objective, objective.weight > 0
        self.average = AveragedModel(
            network,
            multi_avg_fn=moving_average(objective.decay_over(context.steps), objective.warm_up),
            use_buffers=objective.buffers == "averaged",
        )
        if objective.start == "independent" and context.make_independent is not None:
            self.average.module.load_state_dict(context.make_independent().state_dict())
            self.average.n_averaged.fill_(1)  # at 0, the first update would replace these weights by the network's
        self.average.requires_grad_(False)
        self.second = reinitialized_copy(network.head) if objective.heads == 2 else None

    def trainable_parameters(self) -> Iterable[nn.Parameter]:
        return self.second.parameters() if self.second is not None else ()

    def update(self, network: Network) -> None:
        self.average.update_parameters(network)

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        distance, weight = self.objective.distance, self.objective.weight
        if self.second is None:
            return weight * distance(unlabeled.logits, self.logits(unlabeled.images))
        pairs = [(batch, self.second(batch.features).float()) for batch in (labeled, unlabeled)]
        zero = torch.zeros(())
        to_second = sum((distance(batch.logits, second) for batch, second in pairs), zero)
        to_teacher = sum((distance(second, self.logits(batch.images)) for batch, second in pairs), zero)
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


def moving_average(decay: float, warm_up: bool) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """In-place update function for AveragedModel.

    Without the warm-up, the first weights dominate for 1/(1-decay) steps. All tensors are updated in one call
    (`multi_avg_fn`), so that reading the step count synchronizes a GPU only once.
    """

    def update(averaged: Tensors, current: Tensors, steps: Tensor | int) -> None:
        weight = min(decay, 1 - 1 / (int(steps) + 1)) if warm_up else decay
        for mean, now in zip(averaged, current, strict=True):
            if mean.is_floating_point():
                torch.lerp(now, mean, weight, out=mean)
            else:  # counters among the buffers
                mean.copy_(now)

    return update
