"""The squared output discrepancy to the last cycle's model, which stays as it was. The first cycle has none, and trains on its labels alone."""

import copy
from typing import Literal

import torch
from torch import Tensor

from codline.models.base import Network
from codline.objectives.base import Batch, Beside, Companion, Discrepant


class Cyclic(Discrepant):
    name: Literal["cyclic"] = "cyclic"

    def companion(self, network: Network, beside: Beside) -> "Previous | None":
        return Previous(beside.previous, self) if beside.previous is not None else None


class Previous(Companion):
    def __init__(self, network: Network, objective: Cyclic) -> None:
        super().__init__()
        self.objective = objective
        self.network = copy.deepcopy(network).requires_grad_(False)

    def loss(self, labeled: Batch, unlabeled: Batch) -> Tensor:
        return self.objective.weight * self.objective.distance(unlabeled.logits, self.logits(unlabeled.images))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        self.network.eval()  # a finished model: its own normalisation statistics
        logits: Tensor = self.network(images).float()
        return logits
