"""merge: adds the new annotations to the labels so far; refuses annotations that cannot be right."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core.errors import DataError
from codline.core.params import Section
from codline.data import tables
from codline.data.dataset_info import read_dataset_info
from codline.data.dense_outputs import IGNORE_INDEX
from codline.data.labels import is_among, read_sorted_ids, refuse_unknown_classes
from codline.data.masks import decode_mask
from stages.runner import In, Out, run


class Params(Section):
    """merge has no parameters."""


def merge(
    params: Params, *, cycle: str, dataset: In, pool: In, previous_labeled: In, annotations: In, labeled: Out
) -> None:
    old, new = tables.read_table(previous_labeled, tables.LABELED), tables.read_table(annotations, tables.ANNOTATIONS)
    ids, labels = new["id"].to_numpy(), new["label"].to_numpy()
    last_class = len(read_dataset_info(dataset).classes) - 1
    refuse_unknown_classes(previous_labeled, old, last_class + 1)
    refuse_ids(annotations, np.intersect1d(ids, old["id"].to_numpy()), f"already has a label in {previous_labeled}")
    refuse_ids(annotations, np.sort(ids[~is_among(ids, read_sorted_ids(pool, tables.POOL))]), f"is not in {pool}")
    numbers = np.array([highest_class(label) for label in labels], np.int64)
    if (outside := (numbers < 0) | (numbers > last_class)).any():
        refuse_ids(annotations, ids[outside], f"has label {numbers[outside][0]}, expected 0 to {last_class}")
    added = tables.make_table([ids, labels, [cycle] * len(ids), new["annotator"]], tables.LABELED)
    merged = pa.concat_tables([old.cast(added.schema), added]).sort_by("id")
    tables.write_table(merged, tables.LABELED, labeled)


def highest_class(label: int | bytes) -> int:
    """The class number, or the highest one in a mask."""
    if not isinstance(label, bytes):
        return int(label)
    classes = np.unique(decode_mask(label))
    return int(max(classes[classes != IGNORE_INDEX], default=0))


def refuse_ids(path: Path, ids: np.ndarray, problem: str) -> None:
    if len(ids):
        others = f" (and {len(ids) - 1} more)" if len(ids) > 1 else ""
        raise DataError(f"{path}: id {int(ids[0])} {problem}{others}")


if __name__ == "__main__":
    run(merge)
