"""Learning loss (Yoo and Kweon, 2019): an auxiliary module learns which of two labeled images has the larger loss."""

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.models.base import LossPredictor, Network
from codline.objectives.base import AuxiliaryModule, Objective, TrainingBatch, TrainingContext


class Ll4alObjective(Objective):
    """Yoo, Kweon: Learning Loss for Active Learning (CVPR 2019).

    The defaults are those of the usual reimplementation; docs/strategies.md lists the differences.
    """

    name: Literal["ll4al"] = "ll4al"
    weight: PositiveFloat = 1.0
    ranking: Literal["hinge", "logistic"] = "hinge"  # logistic: the ranker of TA-VAAL (Kim et al., 2021)
    margin: PositiveFloat = 1.0  # of the hinge
    width: PositiveInt = 128  # units for each stage of the network
    # Fraction of the steps after which this loss no longer trains the network itself.
    detach_at: float = Field(default=0.6, ge=0, le=1)
    # Whether the module continues from the previous cycle's, as the weights do; not for train.start_from: fresh.
    persists: bool = True

    def make_auxiliary(self, network: Network, context: TrainingContext) -> "LossPrediction":
        auxiliary = LossPrediction(network, self, context)
        if self.persists and context.previous_auxiliary:
            auxiliary.load_state_dict(dict(context.previous_auxiliary))
        return auxiliary

    def ranking_loss(self, predicted: Tensor, losses: Tensor) -> Tensor:
        """Mean over pairs: the first image with the last, the second with the last but one, and so on.

        With an odd number of images, the last one is left out.
        """
        count = len(predicted) // 2
        predicted, losses = predicted[: 2 * count], losses[: 2 * count].detach()
        predicted_difference, difference = ((values - values.flip(0))[:count] for values in (predicted, losses))
        if self.ranking == "hinge":
            total = (self.margin - difference.sign() * predicted_difference).clamp(min=0).sum()
        else:
            is_larger = (difference > 0).float()
            total = functional.binary_cross_entropy_with_logits(predicted_difference, is_larger, reduction="sum")
        return total / max(1, count)


class LossPrediction(AuxiliaryModule):
    uses_stages = True

    def __init__(self, network: Network, objective: Ll4alObjective, context: TrainingContext) -> None:
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
        return self.objective.weight * self.objective.ranking_loss(self.predictor(stages).float(), labeled.losses)


@torch.no_grad()
def stage_channels(network: Network, image_shape: tuple[int, ...]) -> list[int]:
    """Number of channels of each stage's output. Runs in eval mode, so that no statistics change."""
    was_training = network.training
    image = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    stages, _, _ = network.eval().forward_with_stages(image)
    network.train(was_training)
    return [stage.shape[1] for stage in stages]
