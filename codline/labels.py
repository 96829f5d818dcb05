"""Who is labelled, who is not."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError


def ids_of(path: Path, schema: pa.Schema) -> np.ndarray:
    ids: np.ndarray = tables.read(path, schema, "id")["id"].to_numpy()
    return ids


def unlabeled(pool: Path, labeled: Path) -> np.ndarray:
    """Ids of the pool without a label, ascending."""
    everyone, known = ids_of(pool, tables.POOL), ids_of(labeled, tables.LABELED)
    if stray := np.setdiff1d(known, everyone).tolist():
        raise DataError(f"{labeled}: id {stray[0]} is not in {pool}")
    return np.setdiff1d(everyone, known, assume_unique=True)


def looked_up(ids: np.ndarray, path: Path, schema: pa.Schema) -> np.ndarray:
    """Labels of these ids in the table at `path`: class numbers, or masks as they are kept."""
    table = tables.read(path, schema)
    order = np.argsort(table["id"].to_numpy(), kind="stable")
    sorted_ids = table["id"].to_numpy()[order]
    if (unknown := ids[~np.isin(ids, sorted_ids)]).size:
        raise DataError(f"{path}: has no label for id {int(unknown[0])}")
    labels: np.ndarray = table["label"].to_numpy()[order][np.searchsorted(sorted_ids, ids)]
    return labels
