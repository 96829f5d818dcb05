"""Learning loss (Yoo and Kweon, 2019): a module beside the network learns which of two labelled images has the larger loss."""

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.models.base import Network
from codline.objectives.base import Batch, Beside, Companion, Objective
from codline.objectives.loss_predictor import LossPredictor


class Ll4al(Objective):
    """Yoo, Kweon: Learning Loss for Active Learning (CVPR 2019). The defaults are those of the usual reimplementation; docs/strategies.md says what differs."""

    name: Literal["ll4al"] = "ll4al"
    weight: PositiveFloat = 1.0
    ranking: Literal["hinge", "logistic"] = "hinge"  # logistic: the ranker of TA-VAAL (Kim et al., 2021)
    margin: PositiveFloat = 1.0  # of the hinge
    width: PositiveInt = 128  # units for each stage of the network
    detach_at: float = Field(
        default=0.6, ge=0, le=1
    )  # the share of the steps after which the network itself learns nothing from this loss
    persists: bool = (
        True  # whether the module of the last cycle is carried on, as the weights are; not for train.start_from: fresh
    )

    def companion(self, network: Network, beside: Beside) -> "Foretelling":
        companion = Foretelling(network, self, beside)
        if self.persists and beside.kept:
            companion.load_state_dict(dict(beside.kept))
        return companion

    def ranked(self, predicted: Tensor, losses: Tensor) -> Tensor:
        """The first image is paired with the last, the second with the last but one; of an odd number, the last is left out."""
        count = len(predicted) // 2
        predicted, losses = predicted[: 2 * count], losses[: 2 * count].detach()
        apart, truly = ((values - values.flip(0))[:count] for values in (predicted, losses))
        if self.ranking == "hinge":
            return (self.margin - truly.sign() * apart).clamp(min=0).sum() / max(1, count)
        return functional.binary_cross_entropy_with_logits(apart, (truly > 0).float(), reduction="sum") / max(1, count)


class Foretelling(Companion):
    staged = True

    def __init__(self, network: Network, objective: Ll4al, beside: Beside) -> None:
        super().__init__()
        self.objective, self.share = objective, 0.0
        self.predictor = LossPredictor(channels(network, beside.shape()), objective.width)

    def trained(self) -> Iterable[nn.Parameter]:
        return self.predictor.parameters()

    def begin(self, share: float) -> None:
        self.share = share

    def loss(self, labeled: Batch, unlabeled: Batch) -> Tensor:
        assert labeled.losses is not None
        stages = (
            [stage.detach() for stage in labeled.stages] if self.share >= self.objective.detach_at else labeled.stages
        )
        return self.objective.weight * self.objective.ranked(self.predictor(stages).float(), labeled.losses)


@torch.no_grad()
def channels(network: Network, shape: tuple[int, ...]) -> list[int]:
    """How many each stage has. In eval mode, so that no statistics move."""
    was = network.training
    stages, _, _ = network.eval().staged(torch.zeros(1, *shape, device=next(network.parameters()).device))
    network.train(was)
    return [stage.shape[1] for stage in stages]
