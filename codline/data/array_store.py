"""Random access by id to rows of a file: opening reads the ids only, `take` copies only the requested rows."""

import mmap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codline.core.errors import DataError
from codline.data import tables

# Pages of memory-mapped files count as this process's memory until they are released. They stay in the system's
# page cache, so that releasing them often costs little.
MAX_RESIDENT_BYTES = 8 * 2**20


class GrowingArray:
    """int64 values, appended in place: at no time is there a second copy of them."""

    def __init__(self) -> None:
        self.buffer, self.count = np.empty(1024, np.int64), 0

    def append(self, values: np.ndarray) -> None:
        if self.count + len(values) > len(self.buffer):
            self.buffer.resize(2 * len(self.buffer) + len(values), refcheck=False)
        self.buffer[self.count : self.count + len(values)] = values
        self.count += len(values)

    def finish(self) -> np.ndarray:
        """All values. Nothing can be appended any more."""
        self.buffer.resize(self.count, refcheck=False)
        return self.buffer


class AscendingIds:
    """Ascending ids of a chunked file, in as little memory as they need.

    Positions are stored as runs of consecutive ids, of which 0 to N-1 is one, whatever N is: run i begins with id
    `run_ids[i]` in row `run_rows[i]`. Where runs would take more than eight bytes per id, as with ids from content, the
    ids themselves are stored: `run_ids` are all ids, and there are no `run_rows`. Chunk j begins in row
    `chunk_starts[j]`.
    """

    def __init__(self, chunks: Iterable[np.ndarray]) -> None:
        run_ids, run_rows = GrowingArray(), GrowingArray()
        self.chunk_starts, self.has_runs, last = [0], True, np.empty(0, np.int64)
        for ids in chunks:
            steps = np.diff(ids, prepend=last if len(last) else ids[:1] - 2)
            if (steps < 1).any():
                raise ValueError(f"expected ascending ids, found {ids[steps < 1][0]} behind one that is not smaller")
            first, last = self.chunk_starts[-1], ids[-1:].copy() if len(ids) else last
            self.chunk_starts.append(first + len(ids))
            run_starts = np.flatnonzero(steps != 1)
            if self.has_runs and 2 * (run_ids.count + len(run_starts)) > self.chunk_starts[-1]:
                every_id = expand_runs(run_ids.finish(), run_rows.finish(), first)
                run_ids, run_rows, self.has_runs = GrowingArray(), GrowingArray(), False
                run_ids.append(every_id)
            run_ids.append(ids[run_starts] if self.has_runs else ids)
            run_rows.append(first + run_starts if self.has_runs else run_starts[:0])
        self.count, self.run_ids, self.run_rows = self.chunk_starts[-1], run_ids.finish(), run_rows.finish()

    def to_array(self) -> np.ndarray:
        return expand_runs(self.run_ids, self.run_rows, self.count) if self.has_runs else self.run_ids.copy()

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, found): the row of each id; where `found` is false, the id does not exist and its row is arbitrary."""
        if not self.count:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
        run = np.maximum(np.searchsorted(self.run_ids, ids, side="right") - 1, 0)
        if not self.has_runs:
            return run, self.run_ids[run] == ids
        steps = ids - self.run_ids[run]
        lengths = np.where(run + 1 < len(self.run_rows), self.run_rows[(run + 1) % len(self.run_rows)], self.count)
        return self.run_rows[run] + steps, (steps >= 0) & (steps < lengths - self.run_rows[run])


def expand_runs(run_ids: np.ndarray, run_rows: np.ndarray, count: int) -> np.ndarray:
    """All `count` ids of these runs."""
    every_id = np.arange(count)
    every_id += np.repeat(run_ids - run_rows, np.diff(run_rows, append=count))
    return every_id


class IdIndex:
    """Maps ids to chunks of a file and rows of those chunks."""

    def __init__(self, path: Path, chunks: Iterable[np.ndarray]) -> None:
        self.path = path
        self.index = AscendingIds(chunks)
        self.chunk_starts = np.array(self.index.chunk_starts)

    def __len__(self) -> int:
        return self.index.count

    @property
    def ids(self) -> np.ndarray:
        """All ids; a new array of eight bytes per id."""
        return self.index.to_array()

    def contains(self, ids: np.ndarray) -> np.ndarray:
        return self.index.find(ids)[1]

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(chunks, rows): the chunk of each id, and its row in that chunk."""
        rows, found = self.index.find(ids)
        if not found.all():
            raise DataError(f"{self.path}: has no row with id {int(ids[~found][0])}")
        chunks = np.searchsorted(self.chunk_starts, rows, side="right") - 1
        return chunks, rows - self.chunk_starts[chunks]


class ArrayStore(IdIndex):
    """One array of the same shape per id."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def chunk(self, number: int) -> np.ndarray:
        """The arrays of one chunk."""
        raise NotImplementedError

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The arrays of these ids, in their order, as one new array."""
        taken = np.empty((len(ids), *self.shape), self.dtype)
        self.copy_arrays(ids, taken, np.arange(len(ids)))
        return taken

    def copy_arrays(self, ids: np.ndarray, target: np.ndarray, places: np.ndarray) -> None:
        """Copy the array of each id to its place in `target`."""
        chunks, rows = self.locate(ids)
        for number, selected in equal_groups(chunks):
            target[places[selected]] = self.chunk(number)[rows[selected]]


def equal_groups(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each distinct number, ascending, and the positions at which it is."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for first, end in pairwise(starts):
        if first < end:
            yield int(ordered[first]), order[first:end]


class MappedBatches(IdIndex):
    """The record batches of a memory-mapped Arrow file, as chunks."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.reader, self.file_map = tables.map_arrow_file(path)
        with tables.translate_read_errors(path):
            tables.check_schema(self.reader.schema, schema, path)
            super().__init__(path, self.read_ids())

    def read_ids(self) -> Iterator[np.ndarray]:
        ids_only = pa.ipc.IpcReadOptions(included_fields=[0])
        reader = pa.ipc.open_file(pa.py_buffer(self.file_map), options=ids_only)
        # The operating system also reads ahead, up to everything between one batch's ids and the next's.
        released_after = max(1, MAX_RESIDENT_BYTES * reader.num_record_batches // len(self.file_map))  # batches
        for number in range(reader.num_record_batches):
            yield validate_batch(reader.get_batch(number))["id"].to_numpy()
            if number % released_after == 0:
                self.release_pages()
        self.release_pages()

    def read_batch(self, number: int) -> pa.RecordBatch:
        with tables.translate_read_errors(self.path):
            return validate_batch(self.reader.get_batch(number))

    def release_pages(self) -> None:
        if hasattr(self.file_map, "madvise"):
            self.file_map.madvise(mmap.MADV_DONTNEED)


class MappedArrays(ArrayStore, MappedBatches):
    """Arrays stored uncompressed in an Arrow file; a chunk is a view of the memory map, which the caller releases."""

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], schema: pa.Schema) -> None:
        super().__init__(path, schema)
        self.column, self.shape = column, shape
        self.dtype = np.dtype(schema.field(column).type.value_type.to_pandas_dtype())

    def chunk(self, number: int) -> np.ndarray:
        # Not cached: small objects that stay alive between large tensors fragment the heap, by more than 100 MB at a
        # million images. Reading a batch again takes 4 microseconds.
        values: np.ndarray = self.read_batch(number)[self.column].values.to_numpy(zero_copy_only=True)
        return values.reshape(-1, *self.shape)


class ChunkWriter:
    """Collects arrays and writes them in chunks of `rows`. Its buffers are reused: allocating is as slow as filling."""

    def __init__(
        self, writer: pa.RecordBatchFileWriter | pq.ParquetWriter, schema: pa.Schema, shape: tuple[int, ...], rows: int
    ) -> None:
        self.writer, self.schema, self.count = writer, schema, 0
        self.array_type = schema.field(1).type
        self.ids = np.empty(rows, np.int64)
        self.arrays = np.empty((rows, *shape), self.array_type.value_type.to_pandas_dtype())

    def add(self, ids: np.ndarray, arrays: np.ndarray) -> None:
        while len(ids):
            free = slice(self.count, min(self.count + len(ids), len(self.ids)))
            added = free.stop - free.start
            self.ids[free], self.arrays[free], self.count = ids[:added], arrays[:added], free.stop
            ids, arrays = ids[added:], arrays[added:]
            if self.count == len(self.ids):
                self.flush()

    def flush(self) -> None:
        if self.count:
            ids, values = pa.array(self.ids[: self.count]), pa.array(self.arrays[: self.count].reshape(-1))
            arrays = pa.FixedSizeListArray.from_arrays(values, type=self.array_type)
            self.writer.write_batch(pa.record_batch([ids, arrays], schema=self.schema))
        self.count = 0


def validate_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check the lengths in a batch: following a corrupt one past the end of the memory map would kill the process."""
    batch.validate(full=True)
    return batch
