"""The one number that says how good a model is, by its name."""

from collections.abc import Mapping
from typing import Any


def headline(metrics: Mapping[str, Any]) -> tuple[str, float]:
    """Mean intersection over union where there is one, that is of segmentation, else accuracy."""
    if metrics.get("mean_iou") is not None:
        return "mean IoU", float(metrics["mean_iou"])
    return "accuracy", float(metrics["accuracy"])
