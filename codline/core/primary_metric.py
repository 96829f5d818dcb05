"""The metric by which models are compared."""

from collections.abc import Mapping
from typing import Any


def primary_metric(metrics: Mapping[str, Any]) -> tuple[str, float]:
    """Name and value of the primary metric: mean IoU for segmentation, accuracy for classification."""
    if metrics.get("mean_iou") is not None:
        return "mean IoU", float(metrics["mean_iou"])
    return "accuracy", float(metrics["accuracy"])
