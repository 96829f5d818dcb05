"""Splits a dataset into the pool, the initially labeled images, the validation images and the test images."""

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codline.core.errors import UserError, first_names
from codline.data.draws import draw
from codline.data.random_streams import derive_seed
from codline.data.raw_dataset import RawDataset


def resolve_amount(amount: float, total: int) -> int:
    """The number of images that an Amount stands for; `total` is the size of the pool."""
    return amount if isinstance(amount, int) else max(1, round(amount * total))


@dataclass(frozen=True)
class Split:
    """Rows of the dataset, each array ascending."""

    pool: np.ndarray
    with_label: np.ndarray  # subset of the pool: images whose label the dataset has
    initial: np.ndarray  # subset of with_label: the labels that the campaign starts with
    validation: np.ndarray  # never trained on: everything that is chosen by a number is chosen by it
    test: np.ndarray


def split_dataset(raw: RawDataset, start: float | Literal["all"], validation: float, seed: int) -> Split:
    """`start`: how many images of the pool with a label are labeled initially, as an Amount or "all" of them.

    `validation`: an Amount of the labeled images outside the test split, or 0.
    """
    labeled = np.flatnonzero(~raw.is_test & raw.has_label)
    if isinstance(validation, int) and validation >= max(1, len(labeled)):
        found = f"params.yaml: prepare.validation: found {validation}"
        raise UserError(f"{found}, but there are only {len(labeled)} labelled images outside the test split")
    held_out = draw_rows(raw, labeled, validation, derive_seed(seed, "validation")) if validation else labeled[:0]
    pool = np.setdiff1d(np.flatnonzero(~raw.is_test), held_out)
    with_label = pool[raw.has_label[pool]]
    if not len(with_label) or (isinstance(start, int) and start > len(with_label)):
        condition = "" if len(with_label) == len(pool) else " with a label"
        found = f"params.yaml: prepare.start: found {start}"
        raise UserError(f"{found}, but the pool has only {len(with_label)} images{condition}")
    if missing := len(pool) - len(with_label):
        hint = "people label them (annotate.annotator={name: people})"
        logging.getLogger("codline").warning("%d of %d images of the pool have no label; %s", missing, len(pool), hint)
    initial = with_label if start == "all" else draw_rows(raw, with_label, start, derive_seed(seed, "start"))
    if len(initial) < len(raw.classes):
        problem = "some classes start without an example"
        logging.getLogger("codline").warning(
            "prepare.start: %d first labels for %d classes: %s", len(initial), len(raw.classes), problem
        )
    split = Split(pool, with_label, initial, held_out, np.flatnonzero(raw.is_test))
    warn_of_missing_classes(raw, {"test": split.test} | ({"validation": held_out} if validation else {}))
    return split


def draw_rows(raw: RawDataset, rows: np.ndarray, amount: float, key: int) -> np.ndarray:
    """Some of these rows, ascending."""
    drawn = draw(amount, raw.ids[rows], raw.strata[rows], key, by_content=raw.content_ids is not None)
    return np.compress(drawn, rows)


def warn_of_missing_classes(raw: RawDataset, splits: dict[str, np.ndarray]) -> None:
    if not isinstance(raw.labels, np.ndarray):
        return
    missing = {
        name: [raw.classes[number] for number in np.setdiff1d(np.arange(len(raw.classes)), raw.labels[rows])]
        for name, rows in splits.items()
    }
    parts = [f"no {name} images of {first_names(classes)}" for name, classes in missing.items() if classes]
    if parts:
        logging.getLogger("codline").warning("%s: nothing is measured for these classes", "; ".join(parts))
