"""Ids from content: an image keeps its id whatever its files are called, and identical files are one image."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from codline.core.errors import DataError, first_names
from codline.data import tables
from codline.data.draws import draw_count

DIGEST = np.dtype("S32")  # SHA-256; numpy compares all 32 bytes of two digests, though it shows no zeros at the end
Conflicts = Literal["refuse", "skip"]  # what to do with identical files that have different labels


@dataclass(frozen=True)
class DistinctImages:
    """M images of N files. `rows` are the files that the images are read from: of several, the first by name."""

    ids: np.ndarray  # int64 (M,), ascending
    rows: np.ndarray  # (M,)
    labels: np.ndarray  # int32 (M,)
    is_test: np.ndarray  # bool (M,)
    files: pa.Table  # tables.FILES: every name

    def with_pool(self, count: int | None, key: int) -> "DistinctImages":
        """The test images and a number of the others, drawn by class; None: all of them."""
        if count is None:
            return self
        train = ~self.is_test
        if count > train.sum():
            raise DataError(
                f"prepare.dataset.pool: found {count}, but the training files hold only {train.sum()} images"
            )
        kept = self.is_test.copy()
        kept[train] = draw_count(count, self.ids[train], self.labels[train], key)
        files = self.files.filter(pc.is_in(self.files["id"], pa.array(self.ids[kept])))
        return DistinctImages(self.ids[kept], self.rows[kept], self.labels[kept], self.is_test[kept], files)


def content_ids(digests: np.ndarray) -> np.ndarray:
    """int64: the first 63 bits of each digest."""
    first = np.frombuffer(digests.tobytes(), np.uint8).reshape(-1, 32)[:, :8]
    return (np.ascontiguousarray(first).view(">u8")[:, 0] >> np.uint64(1)).astype(np.int64)


def find_distinct_images(
    where: str, names: Sequence[str], digests: np.ndarray, labels: np.ndarray, is_test: np.ndarray,
    label_name: Callable[[int], str], conflicts: Conflicts = "refuse",
) -> DistinctImages:  # fmt: skip
    """The images of N files with these names and digests. A file without a label (-1) takes that of an identical one.

    Tells which images have several names. `where` is the place of the files, and `label_name(label)` describes a label,
    in sentences.
    """
    ids = content_ids(digests)
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    groups = [order[starts[i] : ends[i]] for i in np.flatnonzero(ends - starts > 1)]
    refuse_collisions(names, digests, groups)
    labels, is_test, skipped = labels.copy(), is_test.copy(), list[np.ndarray]()
    conflicting, leaking = list[str](), list[str]()
    for rows in groups:
        rows[:] = sorted(rows, key=lambda row: names[row])  # a view of `order`
        found: dict[int, int] = {}  # the first file of each label
        for row in rows[labels[rows] >= 0]:
            found.setdefault(int(labels[row]), row)
        if len(found) > 1:
            conflicting.append(" and ".join(f"{names[row]} ({label_name(label)})" for label, row in found.items()))
            skipped.append(rows)
        elif is_test[rows].any() and not is_test[rows].all():
            leaking.append(describe_group(names, rows))
        labels[rows], is_test[rows] = next(iter(found), -1), is_test[rows].any()
    report_conflicts(where, conflicting, conflicts)
    report_duplicates(where, [describe_group(names, rows) for rows in groups], leaking)
    kept = ~np.isin(order, np.concatenate(skipped)) if skipped else np.ones(len(order), bool)
    rows = order[starts][kept[starts]]
    files = pa.table([ids[order[kept]], [names[row] for row in order[kept]]], schema=tables.FILES)
    return DistinctImages(ids[rows], rows, labels[rows], is_test[rows], drop_repeated_names(where, files))


def refuse_collisions(names: Sequence[str], digests: np.ndarray, groups: list[np.ndarray]) -> None:
    for rows in groups:
        if len(np.unique(digests[rows])) > 1:
            raise DataError(
                f"{names[rows[0]]} and {names[rows[1]]}: different files whose SHA-256 begins with the same 63 bits, "
                "so that they would have the same id; change a byte of one of them"
            )


def report_conflicts(where: str, conflicting: list[str], conflicts: Conflicts) -> None:
    if not conflicting:
        return
    listed = first_names(sorted(conflicting))
    sentence = f"{where}: identical files with different labels ({len(conflicting)}): {listed}"
    if conflicts == "refuse":
        raise DataError(f"{sentence}; correct or remove them, or leave them out with prepare.dataset.conflicts=skip")
    logging.getLogger("codline").warning("%s; they are left out", sentence)


def report_duplicates(where: str, several: list[str], leaking: list[str]) -> None:
    if several:
        sentence = "%s: images with several names (identical files) are used once each (%d): %s"
        logging.getLogger("codline").warning(sentence, where, len(several), first_names(sorted(several)))
    if leaking:
        sentence = "%s: images in the test split and in the training part are used for testing only (%d): %s"
        logging.getLogger("codline").warning(sentence, where, len(leaking), first_names(sorted(leaking)))


def describe_group(names: Sequence[str], rows: np.ndarray) -> str:
    others = f" and {len(rows) - 2} more" if len(rows) > 2 else ""
    return f"{names[rows[0]]} = {names[rows[1]]}{others}"


def drop_repeated_names(where: str, files: pa.Table) -> pa.Table:
    """A name may occur twice for one image, and is refused for two: labels are exchanged by name."""
    if len(files["file"].unique()) == len(files):
        return files
    files = files.group_by(["id", "file"], use_threads=False).aggregate([])
    counts = files["file"].value_counts().to_pylist()
    if repeated := [pair["values"] for pair in counts if pair["counts"] > 1]:
        raise DataError(f"{where}: {len(repeated)} names are those of several images: {first_names(repeated)}")
    return files.cast(tables.FILES)
