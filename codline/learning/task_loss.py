"""What a network is to learn: a class per image, (N, C) logits, or a class per pixel, (N, C, H, W)."""

import torch
from torch import Tensor
from torch.nn import functional

from codline.data.dense_outputs import NOTHING


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the images, or over the pixels that have a class."""
    if logits.ndim == 2:
        return functional.cross_entropy(logits, targets)
    # One pixel per row: of the form with pixels, CUDA has no deterministic kernel.
    rows, wanted = logits.movedim(1, -1).flatten(0, -2), targets.flatten()
    total = functional.cross_entropy(rows, wanted, ignore_index=NOTHING, reduction="sum")
    return total / (wanted != NOTHING).sum().clamp(min=1)


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each image; of dense ones the mean over the pixels that have a class, 0 where none has."""
    rows = functional.cross_entropy(
        logits.movedim(1, -1).flatten(0, -2), targets.flatten(), ignore_index=NOTHING, reduction="none"
    )
    counted = (targets != NOTHING).reshape(len(targets), -1).sum(1).clamp(min=1)
    return rows.view(len(targets), -1).sum(1) / counted


def right(logits: Tensor, targets: Tensor) -> Tensor:
    """How many images are recognised; of dense ones, the shares of their pixels added up."""
    if logits.ndim == 2:
        return (logits.argmax(1) == targets).sum()
    # A plane per class, and no more of it than whether another class has more: a third of argmax's time, which is a thirtieth of a small network's step.
    planes, counted = logits.detach().contiguous(), targets != NOTHING
    hits = (planes.gather(1, (targets * counted)[:, None])[:, 0] == planes.amax(1)) & counted
    return (hits.flatten(1).sum(1) / counted.flatten(1).sum(1).clamp(min=1)).sum(dtype=torch.float64)
