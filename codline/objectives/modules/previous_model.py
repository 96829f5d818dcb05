"""The previous cycle's model, kept fixed."""

import copy

import torch
from torch import Tensor

from codline.models.networks.network import Network
from codline.objectives.base import DiscrepancyObjective, TrainingBatch
from codline.objectives.modules.base import AuxiliaryModule


class PreviousModel(AuxiliaryModule):
    def __init__(self, network: Network, objective: DiscrepancyObjective) -> None:
        super().__init__()
        self.objective, self.has_loss = objective, objective.weight > 0
        self.network = copy.deepcopy(network).requires_grad_(False)

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        weight = self.objective.weight * unlabeled.image_weight
        return weight * self.objective.distance(unlabeled.logits, self.logits(unlabeled.images))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        self.network.eval()  # training is over for this model: use its own normalization statistics
        logits: Tensor = self.network(images).float()
        return logits
