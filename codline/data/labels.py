"""Who is labelled, who is not."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.data import tables


def ids_of(path: Path, schema: pa.Schema) -> np.ndarray:
    ids: np.ndarray = tables.read(path, schema, "id")["id"].to_numpy()
    return ids


def unlabeled(pool: Path, labeled: Path) -> np.ndarray:
    """Ids of the pool without a label, ascending."""
    everyone, known = np.sort(ids_of(pool, tables.POOL)), np.sort(ids_of(labeled, tables.LABELED))
    places = np.minimum(np.searchsorted(everyone, known), len(everyone) - 1)
    if len(stray := known[everyone[places] != known] if len(everyone) else known):
        raise DataError(f"{labeled}: id {stray[0]} is not in {pool}")
    waiting = np.ones(len(everyone), bool)
    waiting[places] = False
    return everyone[waiting]


def looked_up(ids: np.ndarray, path: Path, schema: pa.Schema) -> np.ndarray:
    """Labels of these ids in the table at `path`: class numbers, or masks as they are kept."""
    table = tables.read(path, schema)
    order = np.argsort(table["id"].to_numpy(), kind="stable")
    sorted_ids = table["id"].to_numpy()[order]
    if (unknown := ids[~np.isin(ids, sorted_ids)]).size:
        raise DataError(f"{path}: has no label for id {int(unknown[0])}")
    labels: np.ndarray = table["label"].to_numpy()[order][np.searchsorted(sorted_ids, ids)]
    return labels
