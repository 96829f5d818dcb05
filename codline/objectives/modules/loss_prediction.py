"""The loss predictor of the objective ll4al, and its loss."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from codline.models.networks.loss_predictor import LossPredictor
from codline.models.networks.network import Network
from codline.objectives.base import TrainingBatch, TrainingContext
from codline.objectives.modules.base import AuxiliaryModule

if TYPE_CHECKING:
    from codline.objectives.ll4al import Ll4alObjective


class LossPrediction(AuxiliaryModule):
    uses_stages, uses_unlabeled = True, False

    def __init__(self, network: Network, objective: "Ll4alObjective", context: TrainingContext) -> None:
        super().__init__()
        self.objective, self.progress = objective, 0.0
        # The attribute names tensors in auxiliary.safetensors.
        self.predictor = LossPredictor(stage_channels(network, context.image_shape), objective.width)

    def trainable_parameters(self) -> Iterable[nn.Parameter]:
        return self.predictor.parameters()

    def start_step(self, progress: float) -> None:
        self.progress = progress

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        assert labeled.losses is not None
        detach = self.progress >= self.objective.detach_at
        stages = [stage.detach() for stage in labeled.stages] if detach else labeled.stages
        weight = self.objective.weight * labeled.pair_weight
        return weight * self.objective.ranking_loss(self.predictor(stages).float(), labeled.losses)


@torch.no_grad()
def stage_channels(network: Network, image_shape: tuple[int, ...]) -> list[int]:
    """Number of channels of each stage's output. Runs in eval mode, so that no statistics change."""
    was_training = network.training
    image = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    stages, _, _ = network.eval().forward_with_stages(image)
    network.train(was_training)
    return [stage.shape[1] for stage in stages]
