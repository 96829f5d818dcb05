"""Which images are the pool, which of them are known from the start, which are for testing."""

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codline.core.errors import UserError
from codline.core.params import amount
from codline.data.raw_dataset import RawDataset


@dataclass(frozen=True)
class Split:
    """Ids, ascending."""

    everyone: np.ndarray
    pool: np.ndarray
    known: np.ndarray  # of the pool: those that have a label
    first: np.ndarray  # of these: the ones that a campaign starts with
    test: np.ndarray


def split(raw: RawDataset, start: float | Literal["all"], rng: np.random.Generator) -> Split:
    """`start` is a share of the pool, a number of images, or all that have a label."""
    ids = np.arange(len(raw.is_test))
    pool, known = ids[~raw.is_test], ids[~raw.is_test & raw.known]
    count = len(known) if start == "all" else amount(start, len(pool))
    if count > len(known):
        having = "" if len(known) == len(pool) else " with a label"
        raise UserError(f"params.yaml: prepare.start: found {count}, but the pool has only {len(known)} images{having}")
    if unknown := len(pool) - len(known):
        logging.warning(
            "%d of %d images of the pool have no label: annotate.annotator={name: people, answers: answers.csv}",
            unknown,
            len(pool),
        )
    if count < len(raw.classes):
        logging.warning(
            "prepare.start: %d first labels for %d classes: some classes start without an example",
            count,
            len(raw.classes),
        )
    return Split(ids, pool, known, np.sort(rng.choice(known, count, replace=False)), ids[raw.is_test])
