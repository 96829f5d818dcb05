"""A graph network that tells labelled images from unlabelled ones by features (Caramalau et al., 2021). n nodes, D features, H hidden units, K columns."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Affinity:
    """How alike the nodes are: the cosines without the diagonal, each column divided by its sum, plus one on the diagonal.

    Only products with it are needed, and those are two thin ones: the n x n matrix itself would be gigabytes.
    """

    def __init__(self, features_nD: Tensor) -> None:
        self.features_nD = functional.normalize(features_nD)
        self.own_n1 = self.features_nD.square().sum(1, keepdim=True)  # 1, or 0 of a node without features
        sums = self.features_nD @ self.features_nD.sum(0)[:, None] - self.own_n1
        self.shares_n1 = torch.where(sums.abs() > 1e-6, 1 / sums, 0)  # a node unlike all others keeps to itself

    def __matmul__(self, values_nK: Tensor) -> Tensor:
        shared = values_nK * self.shares_n1
        return self.features_nD @ (self.features_nD.T @ shared) - self.own_n1 * shared + values_nK


class GraphNetwork(nn.Module):
    """Two graph convolutions, A(XW) + b."""

    def __init__(self, affinity: Affinity, hidden: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self.affinity, self.dropout, self.generator = affinity, dropout, generator
        self.gathered_nD = affinity @ affinity.features_nD  # A(XW) = (AX)W, and AX stays the same through training
        self.first, self.second = self.layer(self.gathered_nD.shape[1], hidden), self.layer(hidden, 1)

    def layer(self, inputs: int, outputs: int) -> nn.ParameterList:
        drawn = (torch.rand(shape, generator=self.generator) for shape in ((inputs, outputs), (outputs,)))
        return nn.ParameterList([((2 * uniform - 1) / outputs**0.5).to(self.gathered_nD.device) for uniform in drawn])

    def forward(self) -> tuple[Tensor, Tensor]:
        """The hidden units and the logit of being labelled."""
        hidden_nH = functional.relu(self.gathered_nD @ self.first[0] + self.first[1])
        if self.training:
            kept = torch.rand(hidden_nH.shape, generator=self.generator) >= self.dropout
            hidden_nH = hidden_nH * kept.to(hidden_nH.device) / (1 - self.dropout)
        return hidden_nH, self.affinity @ (hidden_nH @ self.second[0]) + self.second[1]


@dataclass(frozen=True)
class Settings:
    hidden: int
    dropout: float
    balance: float
    steps: int
    learning_rate: float
    weight_decay: float


def learned(
    features_nD: np.ndarray,
    labeled: int,
    settings: Settings,
    *,
    seed: int,
    device: torch.device,
    advance: Callable[[int, int], None],
) -> tuple[np.ndarray, np.ndarray]:
    """How labelled each node looks, between 0 and 1, and its hidden units with the logit. The last `labeled` nodes are so."""
    nodes = torch.from_numpy(features_nD.astype(np.float32)).to(device)
    network = GraphNetwork(Affinity(nodes), settings.hidden, settings.dropout, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    for step in range(settings.steps):
        optimizer.zero_grad()
        loss(network()[1][:, 0], labeled, settings.balance).backward()
        optimizer.step()
        advance(step + 1, settings.steps)
    with torch.no_grad():
        hidden_nH, logits_n1 = network.eval()()
    return logits_n1[:, 0].sigmoid().cpu().numpy(), torch.cat([hidden_nH, logits_n1], 1).cpu().numpy()


def loss(logits_n: Tensor, labeled: int, balance: float) -> Tensor:
    """Cross-entropy, a mean over either kind, that of the unlabelled times `balance`."""
    cut = len(logits_n) - labeled
    return -functional.logsigmoid(logits_n[cut:]).mean() - balance * functional.logsigmoid(-logits_n[:cut]).mean()
