"""merge: the labels so far and the new annotations -> the labels of the next cycle."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.core.params import Section
from codline.data import dataset_info, masks, tables
from codline.data.dense_outputs import NOTHING
from codline.data.labels import ids_of
from stages.runner import In, Out, run


class Params(Section):
    pass


def merge(
    params: Params, *, cycle: str, dataset: In, pool: In, previous_labeled: In, annotations: In, labeled: Out
) -> None:
    old, new = tables.read(previous_labeled, tables.LABELED), tables.read(annotations, tables.ANNOTATIONS)
    classes = dataset_info.opened(dataset).classes
    ids, labels = new["id"].to_numpy(), new["label"].to_numpy()
    unique, counts = np.unique(ids, return_counts=True)
    refuse(annotations, unique[counts > 1], "is labelled twice")
    refuse(annotations, np.intersect1d(ids, old["id"].to_numpy()), f"already has a label in {previous_labeled}")
    refuse(annotations, np.setdiff1d(ids, ids_of(pool, tables.POOL)), f"is not in {pool}")
    numbers = np.array([highest(one) for one in labels], np.int64)
    outside = (numbers < 0) | (numbers >= len(classes))
    refuse(
        annotations,
        ids[outside],
        f"has label {numbers[outside][0] if outside.any() else ''}, expected 0 to {len(classes) - 1}",
    )
    fresh = tables.made([ids, labels, [cycle] * len(ids)], tables.LABELED)
    both = pa.concat_tables([old.cast(fresh.schema), fresh]).sort_by("id")
    tables.write(both, tables.LABELED, labeled)


def highest(label: int | bytes) -> int:
    """The class number, or the largest in a mask."""
    if not isinstance(label, bytes):
        return int(label)
    present = np.unique(masks.one(label))
    return int(max(present[present != NOTHING], default=0))


def refuse(path: Path, ids: np.ndarray, why: str) -> None:
    if len(ids):
        raise DataError(f"{path}: id {int(ids[0])} {why}" + (f" (and {len(ids) - 1} more)" if len(ids) > 1 else ""))


if __name__ == "__main__":
    run(merge)
