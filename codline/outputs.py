"""outputs.arrow: what a model says of every unlabelled image, written as it streams by. n rows of a chunk, C classes; dense ones have two axes more.

Compressed, it takes a fifth less, and not a bit is lost: ranks would change.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.dense import thinned
from codline.rows import Rows


@contextmanager
def writing(path: Path, shape: tuple[int, ...], cycle: str) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """Yield keep(ids, logits): of dense logits, it keeps the pixels that are kept."""
    schema = tables.with_metadata(tables.outputs(shape), {"cycle": cycle})
    kind = schema.field("logits").type
    with tables.stream(path, schema, compression="zstd") as writer:

        def keep(ids: np.ndarray, logits: np.ndarray) -> None:
            kept = logits if logits.ndim <= 2 or logits.shape[1:] == shape else thinned(logits)
            column = pa.FixedSizeListArray.from_arrays(pa.array(kept.astype(kind.value_type.to_pandas_dtype(), copy=False).reshape(-1)), type=kind)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.int64()), column], schema=schema))

        yield keep


def opened(path: Path, shape: tuple[int, ...]) -> Rows:
    """One batch stays unpacked: those who go through the pool in its order unpack each of them once."""
    return Rows(path, "logits", shape, tables.outputs(shape), compressed=True)


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    """In double precision: probabilities of confident models differ in the ninth digit, and those differences are ranked."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    probs: np.ndarray = exponents / exponents.sum(axis=1, keepdims=True)
    return probs
