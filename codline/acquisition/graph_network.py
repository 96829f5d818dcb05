"""Graph network that separates labeled from unlabeled images by their features (Caramalau et al., 2021).

Shapes: n nodes, D features, H hidden units, K columns.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from codline.acquisition.learner_context import LearnerContext
from codline.models.networks.transfer import to_device


class Affinity:
    """Adjacency matrix: cosine similarities without the diagonal, each column divided by its sum, plus the identity.

    Only its products with thin matrices are needed. They are computed from the features, because the n x n matrix
    would take gigabytes.
    """

    def __init__(self, features_nD: Tensor) -> None:
        self.features_nD = functional.normalize(features_nD)
        self.diagonal_n1 = self.features_nD.square().sum(1, keepdim=True)  # 1, or 0 for a node without features
        sums = self.features_nD @ self.features_nD.sum(0)[:, None] - self.diagonal_n1
        self.column_scales_n1 = torch.where(sums.abs() > 1e-6, 1 / sums, 0)  # 0: a node dissimilar to all others

    def __matmul__(self, values_nK: Tensor) -> Tensor:
        scaled = values_nK * self.column_scales_n1
        return self.features_nD @ (self.features_nD.T @ scaled) - self.diagonal_n1 * scaled + values_nK


class GraphNetwork(nn.Module):
    """Two graph convolutions, A(XW) + b."""

    def __init__(self, affinity: Affinity, hidden: int, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self.affinity, self.dropout, self.generator = affinity, dropout, generator
        self.inputs_nD = affinity @ affinity.features_nD  # A(XW) = (AX)W, and AX is constant during training
        self.first, self.second = self.init_layer(self.inputs_nD.shape[1], hidden), self.init_layer(hidden, 1)

    def init_layer(self, inputs: int, outputs: int) -> nn.ParameterList:
        """Weights and biases, uniform in ±1 / sqrt(outputs)."""
        uniforms = (torch.rand(shape, generator=self.generator) for shape in ((inputs, outputs), (outputs,)))
        return nn.ParameterList([to_device((2 * each - 1) / outputs**0.5, self.inputs_nD.device) for each in uniforms])

    def forward(self) -> tuple[Tensor, Tensor]:
        """Hidden units, and logits of being labeled."""
        hidden_nH = functional.relu(self.inputs_nD @ self.first[0] + self.first[1])
        if self.training:
            is_kept = torch.rand(hidden_nH.shape, generator=self.generator) >= self.dropout
            hidden_nH = hidden_nH * to_device(is_kept, hidden_nH.device) / (1 - self.dropout)
        return hidden_nH, self.affinity @ (hidden_nH @ self.second[0]) + self.second[1]


@dataclass(frozen=True)
class GraphSettings:
    hidden: int
    dropout: float
    balance: float
    steps: int
    learning_rate: float
    weight_decay: float


def train_graph_network(
    features_nD: np.ndarray, labeled: int, settings: GraphSettings, context: LearnerContext
) -> tuple[np.ndarray, np.ndarray]:
    """Probability that each node is labeled, and its embedding: hidden units and logit.

    The last `labeled` nodes are the labeled ones.
    """
    affinity = Affinity(to_device(torch.from_numpy(features_nD.astype(np.float32)), context.device))
    generator = torch.Generator().manual_seed(context.seed)
    network = GraphNetwork(affinity, settings.hidden, settings.dropout, generator)
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    for step in range(settings.steps):
        optimizer.zero_grad()
        graph_loss(network()[1][:, 0], labeled, settings.balance).backward()
        optimizer.step()
        context.advance(step + 1, settings.steps)
    with torch.no_grad():
        hidden_nH, logits_n1 = network.eval()()
    return logits_n1[:, 0].sigmoid().cpu().numpy(), torch.cat([hidden_nH, logits_n1], 1).cpu().numpy()


def graph_loss(logits_n: Tensor, labeled: int, balance: float) -> Tensor:
    """Mean cross-entropy of the labeled nodes, plus `balance` times that of the unlabeled ones."""
    cut = len(logits_n) - labeled
    return -functional.logsigmoid(logits_n[cut:]).mean() - balance * functional.logsigmoid(-logits_n[:cut]).mean()
