"""outputs.parquet: what a model says of every unlabelled image, written as it streams by. n rows of a chunk, C classes; dense ones have two axes more.

The bytes of a number lie apart and are compressed, which is the smallest form in which not a bit is lost: ranks would change.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codline.data import tables
from codline.data.array_store import Arrays, Portion
from codline.data.dense_outputs import thinned

GROUP = 2**20  # bytes of logits that are written, and unpacked, together


@contextmanager
def writing(path: Path, shape: tuple[int, ...], cycle: str) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """Yield keep(ids, logits): of dense logits, it keeps the pixels that are kept."""
    schema = tables.with_metadata(tables.outputs(shape), {"cycle": cycle})
    size = schema.field("logits").type.value_type.bit_width // 8 * math.prod(shape)
    with tables.packed(path, schema, numbers="logits.list.element") as writer:
        portion = Portion(writer, schema, shape, -(-GROUP // size))

        def keep(ids: np.ndarray, logits: np.ndarray) -> None:
            portion.add(ids, logits if logits.ndim <= 2 or logits.shape[1:] == shape else thinned(logits))

        yield keep
        portion.flush()


class Kept(Arrays):
    """One group stays unpacked: those who go through the pool in its order unpack each of them once."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        schema, self.shape = tables.outputs(shape), shape
        self.dtype = np.dtype(schema.field("logits").type.value_type.to_pandas_dtype())
        with tables.opened(path):
            self.file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
            tables.check(self.file.schema_arrow, schema, path)
            self.metadata = tables.metadata(self.file.schema_arrow)
            super().__init__(path, (self.read(number, "id").to_numpy() for number in range(self.file.num_row_groups)))
        self.last: tuple[int, np.ndarray] = -1, np.empty(0)

    def read(self, number: int, column: str) -> pa.Array:
        with tables.opened(self.path):
            return tables.complete(self.path, self.file.read_row_group(number, [column], use_threads=False))[
                column
            ].combine_chunks()

    def chunk(self, number: int) -> np.ndarray:
        if self.last[0] != number:
            self.last = number, self.unpacked(number)
        return self.last[1]

    def unpacked(self, number: int) -> np.ndarray:
        values: np.ndarray = self.read(number, "logits").values.to_numpy(zero_copy_only=True)
        return values.reshape(-1, *self.shape)


def opened(path: Path, shape: tuple[int, ...]) -> Kept:
    return Kept(path, shape)


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    """In double precision: probabilities of confident models differ in the ninth digit, and those differences are ranked."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    probs: np.ndarray = exponents / exponents.sum(axis=1, keepdims=True)
    return probs
