"""How good a classifier is. N images, C classes."""

from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error


def classification(logits_NC: np.ndarray, labels_N: np.ndarray, classes: list[str], bins: int) -> dict[str, Any]:
    logits, labels = torch.from_numpy(logits_NC), torch.from_numpy(labels_N.astype(np.int64))
    per_class = multiclass_accuracy(logits, labels, len(classes), average="none")
    return {
        "accuracy": float(multiclass_accuracy(logits, labels, len(classes), average="micro")),
        "loss": float(functional.cross_entropy(logits.double(), labels)),
        "calibration_error": float(multiclass_calibration_error(logits.softmax(1), labels, len(classes), n_bins=bins)),
        "per_class_accuracy": {name: float(value) for name, value in zip(classes, per_class, strict=True)},
    }
