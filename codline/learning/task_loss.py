"""Cross-entropy and accuracy for one class per image, (N, C) logits, or one per pixel, (N, C, H, W)."""

import torch
from torch import Tensor
from torch.nn import functional

from codline.data.dense_outputs import IGNORE_INDEX


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the images, or over the pixels that have a class."""
    if logits.ndim == 2:
        return functional.cross_entropy(logits, targets)
    # One row per pixel: CUDA has no deterministic kernel for the (N, C, H, W) form.
    rows, row_targets = logits.movedim(1, -1).flatten(0, -2), targets.flatten()
    total = functional.cross_entropy(rows, row_targets, ignore_index=IGNORE_INDEX, reduction="sum")
    return total / (row_targets != IGNORE_INDEX).sum().clamp(min=1)


def losses_per_image(logits: Tensor, targets: Tensor) -> Tensor:
    """(N,) cross-entropy of each image; per pixel: mean over the pixels that have a class, 0 if none has."""
    rows = logits.movedim(1, -1).flatten(0, -2)
    losses = functional.cross_entropy(rows, targets.flatten(), ignore_index=IGNORE_INDEX, reduction="none")
    counts = (targets != IGNORE_INDEX).reshape(len(targets), -1).sum(1).clamp(min=1)
    return losses.view(len(targets), -1).sum(1) / counts


def correct_count(logits: Tensor, targets: Tensor) -> Tensor:
    """Number of correctly classified images; per pixel: sum over the images of their fractions of correct pixels."""
    if logits.ndim == 2:
        return (logits.argmax(1) == targets).sum()
    # Comparing the target's logit with the maximum takes a third of argmax's time, which is 1/30 of a small network's
    # training step. It needs one contiguous plane per class.
    planes, has_class = logits.detach().contiguous(), targets != IGNORE_INDEX
    correct = (planes.gather(1, (targets * has_class)[:, None])[:, 0] == planes.amax(1)) & has_class
    return (correct.flatten(1).sum(1) / has_class.flatten(1).sum(1).clamp(min=1)).sum(dtype=torch.float64)
