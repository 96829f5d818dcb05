"""Rows by id in an Arrow file that is mapped into memory: opening reads the ids, taking copies just the rows asked for."""

import mmap
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError

HELD = 8 * 2**20  # bytes of a file that may be in memory before they are given back; touched again, they come from the system's cache


class Batches:
    """The record batches of a file, and which row of which of them has which id; ids ascend."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.held = path, 0
        self.reader, self.view = tables.mapped(path)
        count = self.reader.num_record_batches
        parts = [np.empty(0, np.int64)]
        with tables.opened(path):
            tables.check(self.reader.schema, schema, path)
            self.metadata = tables.metadata(self.reader.schema)
            ids_alone = pa.ipc.open_file(pa.py_buffer(self.view), options=pa.ipc.IpcReadOptions(included_fields=[0]))
            for number in range(count):
                parts.append(sound(ids_alone.get_batch(number))["id"].to_numpy().copy())
                self.passed(len(self.view) // count)  # the system brings in what is near, too
        self.ids, self.starts = np.concatenate(parts), np.cumsum([0, *map(len, parts[1:])])

    def __len__(self) -> int:
        return len(self.ids)

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
        return self.found(ids)[1]

    def found(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, the row that it would be in, and whether it is there."""
        rows = np.searchsorted(self.ids, ids)
        there = rows < len(self.ids)
        there[there] = self.ids[rows[there]] == ids[there]
        return rows, there

    def located(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, which batch it is in, and which row of that."""
        rows, there = self.found(ids)
        if not there.all():
            raise DataError(f"{self.path}: has no row with id {int(ids[~there][0])}")
        batch = np.searchsorted(self.starts, rows, side="right") - 1
        return batch, rows - self.starts[batch]


class Rows(Batches):
    """One array of one shape per id. Of the batches, `kept` stay as arrays: all, where they are views of the file."""

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], schema: pa.Schema, kept: int | None = None) -> None:
        super().__init__(path, schema)
        self.column, self.shape = column, shape
        self.dtype = schema.field(column).type.value_type.to_pandas_dtype()
        self.chunk = lru_cache(kept)(self.unpacked)

    def unpacked(self, number: int) -> np.ndarray:
        values: np.ndarray = self.read(number)[self.column].values.to_numpy(zero_copy_only=True)
        return values.reshape(-1, *self.shape)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows of these ids, in their order, as one new array."""
        batch_of, rows = self.located(ids)
        taken = np.empty((len(rows), *self.shape), self.dtype)
        for batch in np.unique(batch_of).tolist():
            here = batch_of == batch
            taken[here] = self.chunk(batch)[rows[here]]
        self.touched(taken.nbytes)
        return taken


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A corrupt length would have us read past the end of the file, which kills the process."""
    batch.validate(full=True)
    return batch
