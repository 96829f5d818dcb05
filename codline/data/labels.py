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
    """Ids of the pool without a label, ascending."""
    pool_ids, labeled_ids = (np.sort(read_ids(*table)) for table in ((pool, tables.POOL), (labeled, tables.LABELED)))
    is_labeled = np.isin(pool_ids, labeled_ids)
    if len(outside := labeled_ids[~np.isin(labeled_ids, pool_ids)]):
        raise DataError(f"{labeled}: id {outside[0]} is not in {pool}")
    return pool_ids[~is_labeled]


def lookup_labels(ids: np.ndarray, path: Path, schema: pa.Schema) -> np.ndarray:
    """Labels of these ids in the table at `path`: class numbers, or encoded masks."""
    table = tables.read_table(path, schema)
    order = np.argsort(table["id"].to_numpy(), kind="stable")
    sorted_ids = table["id"].to_numpy()[order]
    if (unknown := ids[~np.isin(ids, sorted_ids)]).size:
        raise DataError(f"{path}: has no label for id {int(unknown[0])}")
    labels: np.ndarray = table["label"].to_numpy()[order][np.searchsorted(sorted_ids, ids)]
    return labels
