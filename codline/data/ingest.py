"""Writes a raw dataset to the files of prepare: the image store, dataset.json and the tables of the split."""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.core.files import write_json
from codline.core.params_errors import format_value
from codline.data import image_store, tables
from codline.data.folder_walk import NOT_PLAIN
from codline.data.pixel_statistics import mean_and_std
from codline.data.raw_dataset import RawDataset
from codline.data.raw_images import image_shape
from codline.data.splits import split_dataset
from codline.runtime.progress import progress_bar

MAX_CLASS_NAME = 200  # characters; MLflow allows 250 with what precedes it
POOL_ROWS = 2**14  # rows of the pool table that are written together


def store_dataset(
    raw: RawDataset, task: str, start: float | Literal["all"], validation_share: float, seed: int,
    *, images: Path, dataset: Path, files: Path, pool: Path, oracle: Path, validation: Path, test: Path, labeled: Path,
) -> np.ndarray:  # fmt: skip
    """Split and write the dataset; return the ids of the pool that are not labeled initially."""
    check_class_names(raw.classes)
    split, ids, labels = split_dataset(raw, start, validation_share, seed), raw.ids, raw.label_cells
    is_pool = np.isin(np.arange(len(ids)), split.pool)
    with progress_bar("prepare", "images", len(ids)) as advance:
        stored = image_store.write_images(images, ids, raw.images, None if raw.mean else is_pool, advance)
    if count := count_duplicates((stored.hashes[row] for row in split.pool), stored.hashes[split.test].tolist()):
        sentence = "prepare.dataset: %d of %d test images are in the pool too, byte for byte"
        logging.getLogger("codline").warning(sentence, count, len(split.test))
    chunks = (split.pool[first : first + POOL_ROWS] for first in range(0, len(split.pool), POOL_ROWS))
    columns = ([ids[rows], pa.array(stored.hashes[rows]).cast(pa.string())] for rows in chunks)
    tables.write_chunks((pa.table(each, schema=tables.POOL) for each in columns), tables.POOL, pool)
    tables.write_columns([ids[split.with_label], labels[split.with_label]], tables.ORACLE, oracle)
    tables.write_columns([ids[split.validation], labels[split.validation]], tables.VALIDATION, validation)
    tables.write_columns([ids[split.test], labels[split.test]], tables.TEST, test)
    tables.write_table(tables.FILES.empty_table() if raw.files is None else raw.files, tables.FILES, files)
    sources = [["init"] * len(split.initial), ["dataset"] * len(split.initial)]
    tables.write_columns([ids[split.initial], labels[split.initial], *sources], tables.LABELED, labeled)
    shape = image_shape(raw.images)
    mean, std = raw.channel_statistics() if raw.mean else mean_and_std(stored.pixel_counts)
    write_json(dataset, {"task": task, "classes": raw.classes, "shape": shape, "mean": mean, "std": std})
    return np.take(ids, np.setdiff1d(split.pool, split.initial))


def check_class_names(classes: tuple[str, ...]) -> None:
    """They are shown in pages, charts and terminals, exchanged in csv files, and part of names in MLflow."""
    expected = f"expected at most {MAX_CLASS_NAME} characters, no control characters, and no blanks around them"
    seen = set[str]()
    for name in classes:
        if not name.strip(".") or name != name.strip() or NOT_PLAIN.search(name) or len(name) > MAX_CLASS_NAME:
            raise DataError(f"prepare.dataset: found the class {format_value(name)}, {expected}")
        if name in seen:
            raise DataError(f"prepare.dataset: found the class {name!r} twice, expected names that differ")
        seen.add(name)


def count_duplicates(pool: Iterable[bytes], test: Collection[bytes]) -> int:
    """The number of test images that are in the pool too, by hash. Memory grows with the test set only."""
    test_hashes = set(test)
    duplicates = {image_hash for image_hash in pool if image_hash in test_hashes}
    return sum(image_hash in duplicates for image_hash in test)
