"""Ids and labels from the tables of labeled and unlabeled images."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.data import tables


def read_ids(path: Path, schema: pa.Schema) -> np.ndarray:
    ids: np.ndarray = tables.read_table(path, schema, "id")["id"].to_numpy()
    return ids


def unlabeled_ids(pool: Path, labeled: Path) -> np.ndarray:
    """Ids of the pool without a label, ascending. Takes nine bytes for each image of the pool."""
    pool_ids, labeled_ids = read_sorted_ids(pool, tables.POOL), np.sort(read_ids(labeled, tables.LABELED))
    if not (is_known := is_among(labeled_ids, pool_ids)).all():
        raise DataError(f"{labeled}: id {labeled_ids[~is_known][0]} is not in {pool}")
    is_labeled, count = np.zeros(len(pool_ids), bool), 0
    is_labeled[np.searchsorted(pool_ids, labeled_ids)] = True
    for start in range(0, len(pool_ids), tables.READ_ROWS):  # in place: np.delete would make a second array
        chunk = slice(start, start + tables.READ_ROWS)
        unlabeled = pool_ids[chunk][~is_labeled[chunk]]
        pool_ids[count : count + len(unlabeled)] = unlabeled
        count += len(unlabeled)
    return pool_ids[:count]


def is_among(ids: np.ndarray, sorted_ids: np.ndarray) -> np.ndarray:
    """Which ids are among the others. np.isin sorts both together, in three times the memory of a large pool."""
    rows = np.searchsorted(sorted_ids, ids)
    found = rows < len(sorted_ids)
    found[found] = sorted_ids[rows[found]] == ids[found]
    return found


def read_sorted_ids(path: Path, schema: pa.Schema) -> np.ndarray:
    """The same as sorting read_ids(), in a third of its memory: a table and its copy are never whole in memory."""
    ids, count = np.empty(tables.count_rows(path, schema), np.int64), 0
    for chunk in tables.read_chunks(path, schema, "id"):
        ids[count : count + len(chunk)] = chunk["id"].to_numpy()
        count += len(chunk)
    tables.refuse_empty(path, count)
    if not (ids[1:] > ids[:-1]).all():
        ids.sort()
        tables.refuse_repeated_ids(path, ids)
    return ids


def read_labels(
    path: Path, schema: pa.Schema, classes: int, may_be_empty: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of a table: class numbers below `classes`, or encoded masks."""
    table = tables.read_table(path, schema)
    if not may_be_empty:
        tables.refuse_empty(path, len(table))
    return table["id"].to_numpy(), refuse_unknown_classes(path, table, classes)


def check_labels(path: Path, schema: pa.Schema, classes: int) -> None:
    """Check class numbers only: masks, which take more memory, are checked where they are decoded."""
    if tables.has_class_numbers(path, schema):
        read_labels(path, schema, classes)


def refuse_unknown_classes(path: Path, table: pa.Table, classes: int) -> np.ndarray:
    """The labels of the table; refuses class numbers for which there is no class. Masks are returned as they are."""
    labels: np.ndarray = table["label"].to_numpy()
    if labels.dtype != object and (outside := (labels < 0) | (labels >= classes)).any():
        found = f"id {table['id'].to_numpy()[outside][0]} has label {labels[outside][0]}"
        others = f" (and {outside.sum() - 1} more)" if outside.sum() > 1 else ""
        raise DataError(f"{path}: {found}, expected 0 to {classes - 1}{others}")
    return labels


def lookup_labels(ids: np.ndarray, path: Path, schema: pa.Schema, classes: int) -> np.ndarray:
    """Labels of these ids in the table at `path`: class numbers below `classes`, or encoded masks."""
    table = tables.read_table(path, schema)
    refuse_unknown_classes(path, table, classes)
    order = np.argsort(table["id"].to_numpy(), kind="stable")
    sorted_ids = table["id"].to_numpy()[order]
    if (unknown := ids[~np.isin(ids, sorted_ids)]).size:
        raise DataError(f"{path}: has no label for id {int(unknown[0])}")
    labels: np.ndarray = table["label"].to_numpy()[order][np.searchsorted(sorted_ids, ids)]
    return labels
