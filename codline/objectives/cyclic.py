"""Squared output discrepancy to the previous cycle's model, kept fixed. The first cycle trains on labels alone."""

import copy
from typing import Literal

import torch
from torch import Tensor

from codline.models.base import Network
from codline.objectives.base import AuxiliaryModule, DiscrepancyObjective, TrainingBatch, TrainingContext


class CyclicObjective(DiscrepancyObjective):
    name: Literal["cyclic"] = "cyclic"

    def make_auxiliary(self, network: Network, context: TrainingContext) -> "PreviousModel | None":
        return PreviousModel(context.previous_network, self) if context.previous_network is not None else None


class PreviousModel(AuxiliaryModule):
    def __init__(self, network: Network, objective: CyclicObjective) -> None:
        super().__init__()
        self.objective = objective
        self.network = copy.deepcopy(network).requires_grad_(False)

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        return self.objective.weight * self.objective.distance(unlabeled.logits, self.logits(unlabeled.images))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        self.network.eval()  # training is over for this model: use its own normalization statistics
        logits: Tensor = self.network(images).float()
        return logits
