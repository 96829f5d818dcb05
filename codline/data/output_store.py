"""outputs.parquet: a model's logits for every unlabeled image, written and read in chunks.

Lossless, since rounding would change the ranking of scores: BYTE_STREAM_SPLIT encoding and zstd.
Array suffixes: n images of a chunk, C classes; dense logits have two more axes.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codline.core.errors import DataError
from codline.data import tables
from codline.data.array_store import ArrayStore, ChunkWriter
from codline.data.dense_outputs import subsample_pixels

ROW_GROUP_BYTES = 2**20  # of logits that are compressed, and decompressed, together


@contextmanager
def output_writer(path: Path, shape: tuple[int, ...], cycle: str) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """Yield write(ids, logits), which stores logits of `shape` per image and subsamples dense logits to it."""
    schema = tables.with_metadata(tables.outputs_schema(shape), {"cycle": cycle})
    row_bytes = schema.field("logits").type.value_type.bit_width // 8 * math.prod(shape)
    with tables.parquet_writer(path, schema, numbers="logits.list.element") as parquet:
        chunk = ChunkWriter(parquet, schema, shape, rows=-(-ROW_GROUP_BYTES // row_bytes))

        def write(ids: np.ndarray, logits: np.ndarray) -> None:
            stored = logits if logits.ndim <= 2 or logits.shape[1:] == shape else subsample_pixels(logits)
            with np.errstate(over="ignore"):  # of half precision: refused below
                stored = stored.astype(chunk.arrays.dtype, copy=False)
            refuse_infinite(stored, f"{path}: the model's outputs are not finite, or too large to be stored")
            chunk.add(ids, stored)

        yield write
        chunk.flush()


class OutputStore(ArrayStore):
    """Logits by id. The last row group stays decompressed, so that a pass in id order decompresses each group once."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        schema, self.shape = tables.outputs_schema(shape), shape
        self.dtype = np.dtype(schema.field("logits").type.value_type.to_pandas_dtype())
        with tables.translate_read_errors(path):
            self.file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            tables.check_schema(self.file.schema_arrow, schema, path)
            self.metadata = tables.read_metadata(self.file.schema_arrow)
            groups = range(self.file.num_row_groups)
            super().__init__(path, (self.read_column(number, "id").to_numpy() for number in groups))
        self.last_chunk: tuple[int, np.ndarray] = -1, np.empty(0)

    def read_column(self, group: int, column: str) -> pa.Array:
        with tables.translate_read_errors(self.path):
            table = self.file.read_row_group(group, [column], use_threads=False)
            return tables.refuse_nulls(self.path, table)[column].combine_chunks()

    def chunk(self, number: int) -> np.ndarray:
        if self.last_chunk[0] != number:
            self.last_chunk = number, self.read_logits(number)
        return self.last_chunk[1]

    def read_logits(self, group: int) -> np.ndarray:
        values: np.ndarray = self.read_column(group, "logits").values.to_numpy(zero_copy_only=True)
        refuse_infinite(values, f"{self.path}: has outputs that are not finite numbers; delete it and run again")
        return values.reshape(-1, *self.shape)


def refuse_infinite(values: np.ndarray, sentence: str) -> None:
    """A sum in double precision is finite if and only if all values are: faster than testing each of them."""
    if not np.isfinite(values.sum(dtype=np.float64)):
        raise DataError(sentence)


def open_output_store(path: Path, shape: tuple[int, ...]) -> OutputStore:
    return OutputStore(path, shape)


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    """In double precision: probabilities of confident models differ in the ninth digit, and scores rank by that."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    probs: np.ndarray = exponents / exponents.sum(axis=1, keepdims=True)
    return probs
