"""Splits a dataset into the pool, the initially labeled images and the test images."""

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codline.core.errors import UserError
from codline.data.raw_dataset import RawDataset


def resolve_amount(amount: float, total: int) -> int:
    """The number of images that an Amount stands for; `total` is the size of the pool."""
    return amount if isinstance(amount, int) else max(1, round(amount * total))


@dataclass(frozen=True)
class Split:
    """Ids, each array ascending."""

    images: np.ndarray  # pool and test
    pool: np.ndarray
    with_label: np.ndarray  # subset of the pool: images whose label the dataset has
    initial: np.ndarray  # subset of with_label: the labels that the campaign starts with
    test: np.ndarray


def split_dataset(raw: RawDataset, start: float | Literal["all"], rng: np.random.Generator) -> Split:
    """`start`: how many images are labeled initially, as an Amount or "all" that have a label."""
    ids = np.arange(len(raw.is_test))
    pool, with_label = ids[~raw.is_test], ids[~raw.is_test & raw.has_label]
    count = len(with_label) if start == "all" else resolve_amount(start, len(pool))
    if count > len(with_label):
        condition = "" if len(with_label) == len(pool) else " with a label"
        found = f"params.yaml: prepare.start: found {count}"
        raise UserError(f"{found}, but the pool has only {len(with_label)} images{condition}")
    if missing := len(pool) - len(with_label):
        hint = "annotate.annotator={name: people, answers: answers.csv}"
        logging.warning("%d of %d images of the pool have no label: %s", missing, len(pool), hint)
    if count < len(raw.classes):
        problem = "some classes start without an example"
        logging.warning("prepare.start: %d first labels for %d classes: %s", count, len(raw.classes), problem)
    initial = np.sort(rng.choice(with_label, count, replace=False))
    return Split(images=ids, pool=pool, with_label=with_label, initial=initial, test=ids[raw.is_test])
