"""How good a model is on the test split. N images, C classes."""

from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from codline.acquisition.image_losses import losses
from codline.data import output_store
from codline.data.dense_outputs import NOTHING


def classification(logits_NC: np.ndarray, labels_N: np.ndarray, classes: list[str], bins: int) -> dict[str, Any]:
    logits, labels = torch.from_numpy(logits_NC), torch.from_numpy(labels_N.astype(np.int64))
    per_class = multiclass_accuracy(logits, labels, len(classes), average="none")
    return {
        "accuracy": float(multiclass_accuracy(logits, labels, len(classes), average="micro")),
        "loss": float(functional.cross_entropy(logits.double(), labels)),
        "calibration_error": float(multiclass_calibration_error(logits.softmax(1), labels, len(classes), n_bins=bins)),
        "per_class_accuracy": {name: float(value) for name, value in zip(classes, per_class, strict=True)},
    }


class Segmentation:
    """Of every pixel at full resolution, one batch of images after the other: memory does not grow with their number."""

    def __init__(self, classes: list[str], bins: int) -> None:
        self.classes, self.bins = classes, bins
        self.confusion_CC = np.zeros((len(classes), len(classes)), np.int64)  # rows the truth, columns the prediction
        self.calibration_3B = np.zeros((3, bins))  # pixels, their confidence, how many of them are right, by confidence
        self.losses: list[float] = []

    def add(self, logits_nCHW: np.ndarray, masks_nHW: np.ndarray) -> list[dict[str, float]]:
        """Count them in, and return what there is to say of each image."""
        return [self.add_one(logits_CHW, mask_HW) for logits_CHW, mask_HW in zip(logits_nCHW, masks_nHW, strict=True)]

    def add_one(self, logits_CHW: np.ndarray, mask_HW: np.ndarray) -> dict[str, float]:
        counted = mask_HW != NOTHING
        probs_CP = output_store.softmax(logits_CHW[None])[0][:, counted]
        truth, said, confidence = mask_HW[counted], probs_CP.argmax(axis=0), probs_CP.max(axis=0)
        here = np.bincount(truth.astype(np.int64) * len(self.classes) + said, minlength=self.confusion_CC.size).reshape(
            self.confusion_CC.shape
        )
        self.confusion_CC += here
        bins = np.minimum((confidence * self.bins).astype(np.int64), self.bins - 1)
        for row, weights in zip(self.calibration_3B, (None, confidence, said == truth), strict=True):
            row += np.bincount(bins, weights, self.bins)
        self.losses.append(float(losses(logits_CHW[None], mask_HW[None])[0]))
        return {"accuracy": ratio(np.trace(here), here.sum()), "mean_iou": mean(ious(here)), "loss": self.losses[-1]}

    def summary(self) -> dict[str, Any]:
        """The loss is the mean over images, each the mean over its pixels."""
        pixels, confidence, right = self.calibration_3B
        recalls = np.diag(self.confusion_CC) / np.maximum(self.confusion_CC.sum(axis=1), 1)
        per_class = zip(self.classes, ious(self.confusion_CC), strict=True)
        return {
            "accuracy": ratio(np.trace(self.confusion_CC), self.confusion_CC.sum()),
            "mean_iou": mean(ious(self.confusion_CC)),
            "loss": float(np.mean(self.losses)),
            "calibration_error": float(np.abs(confidence - right).sum() / max(pixels.sum(), 1)),
            "per_class_accuracy": dict(zip(self.classes, recalls.tolist(), strict=True)),
            "per_class_iou": {name: None if np.isnan(value) else float(value) for name, value in per_class},
            "pixel_share": dict(
                zip(
                    self.classes,
                    (self.confusion_CC.sum(axis=1) / max(self.confusion_CC.sum(), 1)).tolist(),
                    strict=True,
                )
            ),
            "confusion": self.confusion_CC.tolist(),
        }


def ious(confusion_CC: np.ndarray) -> np.ndarray:
    """Intersection over union of each class; none where it is neither there nor predicted."""
    both = np.diag(confusion_CC)
    union = confusion_CC.sum(axis=0) + confusion_CC.sum(axis=1) - both
    with np.errstate(invalid="ignore"):
        found: np.ndarray = both / union
    return found


def mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
