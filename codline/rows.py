"""Rows by id in an Arrow file that is mapped into memory: opening reads the ids, taking copies just the rows asked for."""

import math
import mmap
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError

HELD = 8 * 2**20  # bytes of a file that may be in memory before they are given back; touched again, they come from the system's cache


class Runs:
    """Ascending ids, as runs of consecutive ones: those of a pool numbered from 0 take a few bytes, however many there are."""

    def __init__(self, parts: Iterable[np.ndarray]) -> None:
        firsts, rows, self.starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [0]
        last = np.empty(0, np.int64)
        for part in parts:
            steps = np.diff(part, prepend=last if len(last) else part[:1] - 2)
            if (steps < 1).any():
                raise ValueError(f"expected ascending ids, found {part[steps < 1][0]} behind one that is not smaller")
            begun = np.flatnonzero(steps != 1)
            firsts.append(part[begun])
            rows.append(self.starts[-1] + begun)
            self.starts.append(self.starts[-1] + len(part))
            last = part[-1:].copy() if len(part) else last
        self.firsts, self.rows, self.count = np.concatenate(firsts), np.concatenate(rows), self.starts[-1]

    def all(self) -> np.ndarray:
        return np.arange(self.count) + np.repeat(self.firsts - self.rows, np.diff(self.rows, append=self.count))

    def found(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, the row that it would be in, and whether it is there."""
        if not self.count:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
        run = np.maximum(np.searchsorted(self.firsts, ids, side="right") - 1, 0)
        rows = ids - self.firsts[run] + self.rows[run]
        ends = np.append(self.rows[1:], self.count)[run]
        return rows, (rows >= self.rows[run]) & (rows < ends)


class Batches:
    """The record batches of a file, and which row of which of them has which id; ids ascend."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.held = path, 0
        self.reader, self.view = tables.mapped(path)
        with tables.opened(path):
            tables.check(self.reader.schema, schema, path)
            self.metadata = tables.metadata(self.reader.schema)
            self.runs = Runs(self.ids_by_batch())
        self.starts = np.array(self.runs.starts)

    def ids_by_batch(self) -> Iterator[np.ndarray]:
        ids_alone = pa.ipc.open_file(pa.py_buffer(self.view), options=pa.ipc.IpcReadOptions(included_fields=[0]))
        count = ids_alone.num_record_batches
        for number in range(count):
            yield sound(ids_alone.get_batch(number))["id"].to_numpy()
            self.passed(len(self.view) // count)  # the system brings in what is near, too

    def __len__(self) -> int:
        return self.runs.count

    @property
    def ids(self) -> np.ndarray:
        """All of them: eight bytes each."""
        return self.runs.all()

    def read(self, number: int) -> pa.RecordBatch:
        with tables.opened(self.path):
            return sound(self.reader.get_batch(number))

    def touched(self, size: int) -> None:
        """So many bytes of rows were taken."""
        self.passed(size)

    def passed(self, size: int) -> None:
        """So many bytes more may be in memory, which are given back once they are many: the file has them."""
        self.held += size
        if self.held > HELD and hasattr(self.view, "madvise"):
            self.view.madvise(mmap.MADV_DONTNEED)
            self.held = 0

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Which of the ids are there."""
        return self.runs.found(ids)[1]

    def located(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, which batch it is in, and which row of that."""
        rows, there = self.runs.found(ids)
        if not there.all():
            raise DataError(f"{self.path}: has no row with id {int(ids[~there][0])}")
        batch = np.searchsorted(self.starts, rows, side="right") - 1
        return batch, rows - self.starts[batch]


class Rows(Batches):
    """One array of one shape per id. Of compressed batches, the last one stays unpacked; others are views of the file."""

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], schema: pa.Schema, compressed: bool = False) -> None:
        super().__init__(path, schema)
        self.column, self.shape = column, shape
        self.dtype = np.dtype(schema.field(column).type.value_type.to_pandas_dtype())
        self.places = np.full(len(self.starts) - 1, -1)  # in the file, of the batches that were seen
        self.chunk = lru_cache(1)(self.unpacked) if compressed else self.viewed

    def unpacked(self, number: int) -> np.ndarray:
        values: np.ndarray = self.read(number)[self.column].values.to_numpy(zero_copy_only=True)
        return values.reshape(-1, *self.shape)

    def viewed(self, number: int) -> np.ndarray:
        """Of a batch seen before, its place is kept and nothing else.

        Small objects that stay come to lie between large tensors that come and go, and the holes around them would grow with the pool: 100 MB and more
        at a million images.
        """
        if self.places[number] < 0:
            self.places[number] = address(self.unpacked(number)) - address(np.frombuffer(self.view, np.uint8))
        shape = (int(self.starts[number + 1] - self.starts[number]), *self.shape)
        return np.frombuffer(self.view, self.dtype, math.prod(shape), int(self.places[number])).reshape(shape)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows of these ids, in their order, as one new array."""
        batch_of, rows = self.located(ids)
        taken = np.empty((len(rows), *self.shape), self.dtype)
        for batch in np.unique(batch_of).tolist():
            here = batch_of == batch
            taken[here] = self.chunk(batch)[rows[here]]
        self.touched(taken.nbytes)
        return taken


def address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A corrupt length would have us read past the end of the file, which kills the process."""
    batch.validate(full=True)
    return batch
