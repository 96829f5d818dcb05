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
from codline.evaluation.intervals import bootstrap_mean_iou, mean_ious, wilson_interval
from codline.learning.image_losses import image_losses


def classification_metrics(
    logits_NC: np.ndarray, labels_N: np.ndarray, classes: list[str], bins: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of metrics.json, and of details.json. Means over classes are over those that have images."""
    logits, labels = torch.from_numpy(logits_NC), torch.from_numpy(labels_N.astype(np.int64))
    predicted = logits.argmax(dim=1)
    images, guesses, hits = (
        torch.bincount(part, minlength=len(classes)).numpy()
        for part in (labels, predicted, labels[predicted == labels])
    )
    is_present, correct = images > 0, int(hits.sum())
    recalls, f1 = hits / np.maximum(images, 1), 2 * hits / np.maximum(images + guesses, 1)
    low, high = wilson_interval(correct, len(labels))
    metrics = {
        "accuracy": correct / len(labels),
        "accuracy_low": low,
        "accuracy_high": high,
        "balanced_accuracy": float(recalls[is_present].mean()),
        "macro_f1": float(f1[is_present].mean()),
        "loss": float(functional.cross_entropy(logits.double(), labels)),
        "calibration_error": calibration_error(logits.softmax(1), labels, bins),
    }
    details = {
        "per_class_images": dict(zip(classes, images.tolist(), strict=True)),
        "per_class_accuracy": by_class(classes, recalls, is_present),
        "per_class_f1": by_class(classes, f1, is_present),
    }
    return metrics, details


def by_class(classes: list[str], values_C: np.ndarray, is_present_C: np.ndarray) -> dict[str, float | None]:
    """{class: value}, None for a class that the split lacks."""
    rows = zip(classes, values_C.tolist(), is_present_C.tolist(), strict=True)
    return {name: value if is_present else None for name, value, is_present in rows}


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
    """Metrics over all labeled pixels at full resolution. Keeps three numbers per image and class."""

    def __init__(self, classes: list[str], bins: int) -> None:
        self.classes, self.bins = classes, bins
        self.confusion_CC = np.zeros((len(classes), len(classes)), np.int64)  # rows: true class, columns: predicted
        self.calibration_3B = np.zeros((3, bins))  # per bin: pixels, sum of confidences, correct pixels
        self.losses: list[float] = []
        self.pixels_3C: list[np.ndarray] = []  # per image and class: correct, true and predicted pixels

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
        self.pixels_3C.append(class_pixels(confusion_CC))
        bins = np.minimum((confidence * self.bins).astype(np.int64), self.bins - 1)
        for row, weights in zip(self.calibration_3B, (None, confidence, predicted == truth), strict=True):
            row += np.bincount(bins, weights, self.bins)
        self.losses.append(float(image_losses(logits_CHW[None], mask_HW[None])[0]))
        return {
            "accuracy": pixel_accuracy(confusion_CC),
            "mean_iou": mean_iou(confusion_CC),
            "loss": self.losses[-1],
        }

    def mean_iou(self) -> float:
        return mean_iou(self.confusion_CC)

    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json; the loss is the mean over images of the mean over each image's pixels."""
        pixels, confidence, correct = self.calibration_3B
        low, high = bootstrap_mean_iou(*np.stack(self.pixels_3C, axis=1))
        return {
            "mean_iou": self.mean_iou(),
            "mean_iou_low": low,
            "mean_iou_high": high,
            "accuracy": pixel_accuracy(self.confusion_CC),
            "loss": float(np.mean(self.losses)),
            "calibration_error": float(np.abs(confidence - correct).sum() / max(pixels.sum(), 1)),
        }

    def details(self) -> dict[str, Any]:
        """The content of details.json."""
        correct, true, predicted = class_pixels(self.confusion_CC)
        images = np.count_nonzero([each[1] for each in self.pixels_3C], axis=0)
        recalls, ious = correct / np.maximum(true, 1), correct / np.maximum(true + predicted - correct, 1)
        return {
            "per_class_images": dict(zip(self.classes, images.tolist(), strict=True)),
            "per_class_accuracy": by_class(self.classes, recalls, true > 0),
            "per_class_iou": by_class(self.classes, ious, true > 0),
            "pixel_share": dict(zip(self.classes, (true / max(true.sum(), 1)).tolist(), strict=True)),
            "confusion": self.confusion_CC.tolist(),
        }


def class_pixels(confusion_CC: np.ndarray) -> np.ndarray:
    """(3, C): correctly classified pixels of each class, pixels of the class, pixels predicted as it."""
    return np.stack([np.diag(confusion_CC), confusion_CC.sum(axis=1), confusion_CC.sum(axis=0)])


def mean_iou(confusion_CC: np.ndarray) -> float:
    """Mean over the classes that have pixels; 0 if there is none."""
    return float(mean_ious(*class_pixels(confusion_CC)[:, None])[0])


def pixel_accuracy(confusion_CC: np.ndarray) -> float:
    pixels = confusion_CC.sum()
    return float(np.trace(confusion_CC) / pixels) if pixels else 0.0
