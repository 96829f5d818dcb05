"""Predicts a network's loss for an image, for the objective ll4al and the strategies that use its predictions."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class LossPredictor(nn.Module):
    """Predicts a network's loss for an image from the outputs of its stages (Yoo and Kweon, 2019).

    One linear layer per stage on its outputs, averaged over the pixels; a last layer turns them into one number.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(each, width) for each in channels)
        self.last = nn.Linear(len(channels) * width, 1)

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """(N,) predicted losses. Only their order is meaningful, not their scale."""
        pooled = [stage.flatten(2).mean(2) if stage.ndim > 2 else stage for stage in stages]
        hidden = [functional.relu(branch(each)) for branch, each in zip(self.branches, pooled, strict=True)]
        predicted: Tensor = self.last(torch.cat(hidden, 1))[:, 0]
        return predicted


def predictor_from_tensors(tensors: Mapping[str, Tensor]) -> LossPredictor:
    """The trained predictor; its layer sizes follow from the tensors' shapes."""
    count = sum(key.startswith("branches.") for key in tensors) // 2  # each has a weight and a bias
    weights = [tensors[f"branches.{i}.weight"] for i in range(count)]
    predictor = LossPredictor([weight.shape[1] for weight in weights], weights[0].shape[0])
    predictor.load_state_dict(dict(tensors))
    return predictor.eval()
