"""Rows by id in a file: opening reads the ids, taking copies just the rows asked for. Arrow files are mapped into memory."""

import math
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codline.core.errors import DataError
from codline.data import tables

HELD = (
    8 * 2**20
)  # bytes of a file that may be in memory before they are given back; touched again, they come from the system's cache


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
        self.ends = np.append(self.rows[1:], self.count)

    def all(self) -> np.ndarray:
        return np.arange(self.count) + np.repeat(self.firsts - self.rows, self.ends - self.rows)

    def found(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, the row that it would be in, and whether it is there."""
        if not self.count:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
        run = np.maximum(np.searchsorted(self.firsts, ids, side="right") - 1, 0)
        rows = ids - self.firsts[run] + self.rows[run]
        return rows, (rows >= self.rows[run]) & (rows < self.ends[run])


class Index:
    """Which row of which stretch of a file has which id; ids ascend."""

    def __init__(self, path: Path, ids_by_stretch: Iterable[np.ndarray]) -> None:
        self.path = path
        self.runs = Runs(ids_by_stretch)
        self.starts = np.array(self.runs.starts)

    def __len__(self) -> int:
        return self.runs.count

    @property
    def ids(self) -> np.ndarray:
        """All of them: eight bytes each."""
        return self.runs.all()

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Which of the ids are there."""
        return self.runs.found(ids)[1]

    def located(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, which stretch it is in, and which row of that."""
        rows, there = self.runs.found(ids)
        if not there.all():
            raise DataError(f"{self.path}: has no row with id {int(ids[~there][0])}")
        stretch = np.searchsorted(self.starts, rows, side="right") - 1
        return stretch, rows - self.starts[stretch]


class Arrays(Index):
    """One array of one shape per id."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def chunk(self, number: int) -> np.ndarray:
        """Those of a stretch."""
        raise NotImplementedError

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The arrays of these ids, in their order, as one new array."""
        stretch_of, rows = self.located(ids)
        taken = np.empty((len(rows), *self.shape), self.dtype)
        for stretch in np.unique(stretch_of).tolist():
            here = stretch_of == stretch
            taken[here] = self.chunk(stretch)[rows[here]]
        self.touched(taken.nbytes)
        return taken

    def touched(self, size: int) -> None:
        """So many bytes of rows were taken."""


class Batches(Index):
    """The record batches of an Arrow file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.held = 0
        self.reader, self.view = tables.mapped(path)
        with tables.opened(path):
            tables.check(self.reader.schema, schema, path)
            super().__init__(path, self.ids_by_batch())

    def ids_by_batch(self) -> Iterator[np.ndarray]:
        ids_alone = pa.ipc.open_file(pa.py_buffer(self.view), options=pa.ipc.IpcReadOptions(included_fields=[0]))
        count = ids_alone.num_record_batches
        for number in range(count):
            yield sound(ids_alone.get_batch(number))["id"].to_numpy()
            self.passed(len(self.view) // count)  # the system brings in what is near, too

    def read(self, number: int) -> pa.RecordBatch:
        with tables.opened(self.path):
            return sound(self.reader.get_batch(number))

    def passed(self, size: int) -> None:
        """So many bytes more may be in memory, which are given back once they are many: the file has them."""
        self.held += size
        if self.held > HELD and hasattr(self.view, "madvise"):
            self.view.madvise(mmap.MADV_DONTNEED)
            self.held = 0


class Views(Arrays, Batches):
    """Arrays that lie in an Arrow file as they are."""

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], schema: pa.Schema) -> None:
        super().__init__(path, schema)
        self.column, self.shape = column, shape
        self.dtype = np.dtype(schema.field(column).type.value_type.to_pandas_dtype())
        self.places = np.full(len(self.starts) - 1, -1)  # in the file, of the batches that were seen

    def chunk(self, number: int) -> np.ndarray:
        """Of a batch seen before, its place is kept and nothing else.

        Small objects that stay come to lie between large tensors that come and go, and the holes around them would grow with the pool: 100 MB and more
        at a million images.
        """
        if self.places[number] < 0:
            values = self.read(number)[self.column].values.to_numpy(zero_copy_only=True)
            self.places[number] = address(values) - address(np.frombuffer(self.view, np.uint8))
        shape = (int(self.starts[number + 1] - self.starts[number]), *self.shape)
        return np.frombuffer(self.view, self.dtype, math.prod(shape), int(self.places[number])).reshape(shape)

    def touched(self, size: int) -> None:
        self.passed(size)


class Portion:
    """Arrays to be written together, until there are enough, in memory that every portion uses again: to ask for it anew takes as long as to fill it."""

    def __init__(
        self, writer: pa.RecordBatchFileWriter | pq.ParquetWriter, schema: pa.Schema, shape: tuple[int, ...], rows: int
    ) -> None:
        self.writer, self.schema, self.count = writer, schema, 0
        self.kind = schema.field(1).type
        self.ids, self.arrays = (
            np.empty(rows, np.int64),
            np.empty((rows, *shape), self.kind.value_type.to_pandas_dtype()),
        )

    def add(self, ids: np.ndarray, arrays: np.ndarray) -> None:
        while len(ids):
            room = slice(self.count, min(self.count + len(ids), len(self.ids)))
            fitting = room.stop - room.start
            self.ids[room], self.arrays[room], self.count = ids[:fitting], arrays[:fitting], room.stop
            ids, arrays = ids[fitting:], arrays[fitting:]
            if self.count == len(self.ids):
                self.flush()

    def flush(self) -> None:
        if self.count:
            column = pa.FixedSizeListArray.from_arrays(pa.array(self.arrays[: self.count].reshape(-1)), type=self.kind)
            self.writer.write_batch(pa.record_batch([pa.array(self.ids[: self.count]), column], schema=self.schema))
        self.count = 0


def address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A corrupt length would have us read past the end of the file, which kills the process."""
    batch.validate(full=True)
    return batch
