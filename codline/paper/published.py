"""The paper's own numbers, from published.yaml."""

from functools import cache
from pathlib import Path
from typing import Any

from codline.core.params import read_yaml

TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "caltech101": "Caltech-101",
    "cityscapes": "Cityscapes",
}  # the paper's datasets, in its order


@cache
def numbers() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name("published.yaml"))


def forty_percent(dataset: str, arm: str) -> float | None:
    """The published accuracy in %, with 40% of the labels; for `Full Training`, with all of them."""
    if arm == "Full Training":
        full: float | None = numbers()["full_training"].get(dataset)
        return full
    if dataset == "cityscapes":
        mean: float | None = numbers()["class_iou"]["mean"].get(arm)
        return mean
    value: float | None = numbers()["forty_percent"].get(dataset, {}).get(arm)
    return value
