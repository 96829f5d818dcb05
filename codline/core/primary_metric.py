"""The metric by which models are compared, and the choice of the best model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMES = {"mean_iou": "mean IoU", "accuracy": "accuracy"}  # key in metrics.json: name for people


class PrimaryMetric(NamedTuple):
    """A test metric with its 95% interval."""

    name: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """As in the terminal: 92.1% [88.4, 94.7]"""
        return f"{self.value:.1%} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def primary_key(metrics: Mapping[str, Any]) -> str:
    """The key of the primary metric in metrics.json: mean IoU for segmentation, accuracy for classification."""
    return "accuracy" if metrics.get("mean_iou") is None else "mean_iou"


def primary_metric(metrics: Mapping[str, Any]) -> PrimaryMetric:
    """The primary metric on the test split, from the content of a metrics.json."""
    key = primary_key(metrics)
    value, low, high = (float(metrics[name]) for name in (key, f"{key}_low", f"{key}_high"))
    return PrimaryMetric(NAMES[key], value, low, high)


def selection_value(metrics: Mapping[str, Any]) -> float | None:
    """The primary metric on the validation split, by which models are chosen; None without validation images."""
    value = metrics.get(f"validation_{primary_key(metrics)}")
    return None if value is None else float(value)


def best_cycle(metrics_by_cycle: Mapping[str, Mapping[str, Any]]) -> str:
    """The cycle with the highest validation metric, fewest labels on a tie; without validation images the last.

    The test metric never decides: a model that was chosen by it would look better than it is.
    """
    values = {cycle: selection_value(metrics) for cycle, metrics in metrics_by_cycle.items()}
    known = {cycle: value for cycle, value in values.items() if value is not None}
    if len(known) < len(values):
        return list(values)[-1]
    return max(known, key=lambda cycle: (known[cycle], -metrics_by_cycle[cycle]["labels"]))
