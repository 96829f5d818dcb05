"""A small network that foretells a network's loss from what its stages say of an image (Yoo and Kweon, 2019)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class LossPredictor(nn.Module):
    """Each stage's output, its mean over the pixels, goes through a layer of its own; one more layer makes them a number."""

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(each, width) for each in channels)
        self.last = nn.Linear(len(channels) * width, 1)

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """One number per image: larger for a larger loss, on no scale of its own."""
        pooled = [stage.flatten(2).mean(2) if stage.ndim > 2 else stage for stage in stages]
        told = [functional.relu(branch(each)) for branch, each in zip(self.branches, pooled, strict=True)]
        predicted: Tensor = self.last(torch.cat(told, 1))[:, 0]
        return predicted


def loaded(tensors: Mapping[str, Tensor]) -> LossPredictor:
    """As it was trained: the tensors' shapes say how it is built."""
    weights = [tensors[f"branches.{i}.weight"] for i in range(sum(key.startswith("branches.") for key in tensors) // 2)]
    predictor = LossPredictor([weight.shape[1] for weight in weights], weights[0].shape[0])
    predictor.load_state_dict(dict(tensors))
    return predictor.eval()
