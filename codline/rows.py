"""Rows by id in a memory-mapped Arrow file: opening reads nothing, taking copies just the rows asked for."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError

HELD = 8 * 2**20  # bytes of a file that may be in memory before they are given back; touched again, they come from the system's cache


class Batches:
    """The record batches of a file, and which row of which of them has which id; ids ascend."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        reader, self.view = tables.mapped(path)
        self.held = 0
        with tables.opened(path):
            tables.check(reader.schema, schema, path)
            self.metadata = tables.metadata(reader.schema)
            self.batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            for batch in self.batches:
                batch.validate(full=True)  # a corrupt length would have us read past the end of the file, which kills the process
            self.ids = np.concatenate([np.empty(0, np.int64), *(batch["id"].to_numpy() for batch in self.batches)])
        self.starts = np.cumsum([0, *(len(batch) for batch in self.batches)])

    def __len__(self) -> int:
        return len(self.ids)

    def touched(self, size: int) -> None:
        """So many bytes more are in memory, which are given back once they are many: the file has them."""
        self.held += size
        if self.held > HELD and hasattr(self.view, "madvise"):
            self.view.madvise(mmap.MADV_DONTNEED)
            self.held = 0

    def located(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each id, which batch it is in, and which row of that."""
        rows = np.searchsorted(self.ids, ids)
        missing = rows >= len(self.ids)
        missing[~missing] = self.ids[rows[~missing]] != ids[~missing]
        if missing.any():
            raise DataError(f"{self.path}: has no row with id {int(ids[missing][0])}")
        batch = np.searchsorted(self.starts, rows, side="right") - 1
        return batch, rows - self.starts[batch]


class Rows(Batches):
    """One array of one shape per id; chunks are views of the file, not copies."""

    def __init__(self, path: Path, column: str, shape: tuple[int, ...], schema: pa.Schema) -> None:
        super().__init__(path, schema)
        self.shape = shape
        self.dtype = schema.field(column).type.value_type.to_pandas_dtype()
        with tables.opened(path):
            self.chunks = [batch[column].values.to_numpy(zero_copy_only=True).reshape(-1, *shape) for batch in self.batches]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start, chunk in zip(self.starts, self.chunks, strict=False):
            yield self.ids[start : start + len(chunk)], chunk
            self.touched(chunk.nbytes)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows of these ids, in their order, as one new array."""
        chunk_of, rows = self.located(ids)
        taken = np.empty((len(rows), *self.shape), self.dtype)
        for chunk in np.unique(chunk_of):
            here = chunk_of == chunk
            taken[here] = self.chunks[chunk][rows[here]]
        self.touched(taken.nbytes)
        return taken
