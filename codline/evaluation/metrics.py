"""Metrics of a model on a labeled split.

Shapes: N images (n in a batch), C classes, B confidence bins, P labeled pixels of an image.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from codline.data import output_store
from codline.data.dense_outputs import IGNORE_INDEX
from codline.learning.image_losses import image_losses


def classification_metrics(
    logits_NC: np.ndarray, labels_N: np.ndarray, classes: list[str], bins: int
) -> dict[str, Any]:
    logits, labels = torch.from_numpy(logits_NC), torch.from_numpy(labels_N.astype(np.int64))
    correct = logits.argmax(dim=1) == labels
    images, hits = (torch.bincount(part, minlength=len(classes)) for part in (labels, labels[correct]))
    per_class = hits / images.clamp(min=1)
    return {
        "accuracy": float(correct.sum() / len(labels)),
        "loss": float(functional.cross_entropy(logits.double(), labels)),
        "calibration_error": calibration_error(logits.softmax(1), labels, bins),
        "per_class_accuracy": dict(zip(classes, per_class.tolist(), strict=True)),
    }


def calibration_error(probs_NC: Tensor, labels_N: Tensor, bins: int) -> float:
    """Expected calibration error over equal-width bins, in float32: bit for bit what torchmetrics computes.

    Reimplemented because importing torchmetrics takes longer than evaluating a small model.
    """
    confidence, predicted = probs_NC.max(dim=1)
    # A confidence of exactly 1 gets a bin of its own, the last one.
    bin_of_image = torch.bucketize(confidence, torch.linspace(0, 1, bins + 1), right=True) - 1
    count, confidence_sum, correct_sum = (
        torch.zeros(bins + 1).scatter_add_(0, bin_of_image, values)
        for values in (torch.ones_like(confidence), confidence, (predicted == labels_N).float())
    )
    gap = (correct_sum / count.clamp(min=1) - confidence_sum / count.clamp(min=1)).abs()
    return float((gap * (count / count.sum())).sum())


class SegmentationMetrics:
    """Metrics over all labeled pixels at full resolution, accumulated image by image in constant memory."""

    def __init__(self, classes: list[str], bins: int) -> None:
        self.classes, self.bins = classes, bins
        self.confusion_CC = np.zeros((len(classes), len(classes)), np.int64)  # rows: true class, columns: predicted
        self.calibration_3B = np.zeros((3, bins))  # per bin: pixels, sum of confidences, correct pixels
        self.losses: list[float] = []

    def add(self, logits_nCHW: np.ndarray, masks_nHW: np.ndarray) -> list[dict[str, float]]:
        """Accumulate a batch and return the metrics of each of its images."""
        return [self.add_image(logits, mask) for logits, mask in zip(logits_nCHW, masks_nHW, strict=True)]

    def add_image(self, logits_CHW: np.ndarray, mask_HW: np.ndarray) -> dict[str, float]:
        is_labeled = mask_HW != IGNORE_INDEX
        probs_CP = output_store.softmax(logits_CHW[None])[0][:, is_labeled]
        truth, predicted, confidence = mask_HW[is_labeled], probs_CP.argmax(axis=0), probs_CP.max(axis=0)
        cells = truth.astype(np.int64) * len(self.classes) + predicted
        confusion_CC = np.bincount(cells, minlength=self.confusion_CC.size).reshape(self.confusion_CC.shape)
        self.confusion_CC += confusion_CC
        bins = np.minimum((confidence * self.bins).astype(np.int64), self.bins - 1)
        for row, weights in zip(self.calibration_3B, (None, confidence, predicted == truth), strict=True):
            row += np.bincount(bins, weights, self.bins)
        self.losses.append(float(image_losses(logits_CHW[None], mask_HW[None])[0]))
        return {
            "accuracy": pixel_accuracy(confusion_CC),
            "mean_iou": mean_iou(confusion_CC),
            "loss": self.losses[-1],
        }

    def summary(self) -> dict[str, Any]:
        """Metrics over all pixels; the loss is the mean over images of the mean over each image's pixels."""
        pixels, confidence, correct = self.calibration_3B
        pixels_per_class = self.confusion_CC.sum(axis=1)
        recalls = np.diag(self.confusion_CC) / np.maximum(pixels_per_class, 1)
        shares = pixels_per_class / max(self.confusion_CC.sum(), 1)
        per_class = zip(self.classes, ious(self.confusion_CC), strict=True)
        return {
            "accuracy": pixel_accuracy(self.confusion_CC),
            "mean_iou": mean_iou(self.confusion_CC),
            "loss": float(np.mean(self.losses)),
            "calibration_error": float(np.abs(confidence - correct).sum() / max(pixels.sum(), 1)),
            "per_class_accuracy": dict(zip(self.classes, recalls.tolist(), strict=True)),
            "per_class_iou": {name: None if np.isnan(value) else float(value) for name, value in per_class},
            "pixel_share": dict(zip(self.classes, shares.tolist(), strict=True)),
            "confusion": self.confusion_CC.tolist(),
        }


def ious(confusion_CC: np.ndarray) -> np.ndarray:
    """Intersection over union of each class; nan for a class that is neither present nor predicted."""
    intersection = np.diag(confusion_CC)
    union = confusion_CC.sum(axis=0) + confusion_CC.sum(axis=1) - intersection
    with np.errstate(invalid="ignore"):
        values: np.ndarray = intersection / union
    return values


def mean_iou(confusion_CC: np.ndarray) -> float:
    """Mean over the classes that are present or predicted; 0 if there is none."""
    values = ious(confusion_CC)
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def pixel_accuracy(confusion_CC: np.ndarray) -> float:
    pixels = confusion_CC.sum()
    return float(np.trace(confusion_CC) / pixels) if pixels else 0.0
