"""outputs.arrow: what a model says of every unlabelled image, written as it streams by. n rows of a chunk, C classes; dense ones have two axes more."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.dense import NOTHING, thinned
from codline.rows import Rows

Chunk = tuple[np.ndarray, list[np.ndarray]]  # ids; logits of one or more networks


def write(path: Path, shape: tuple[int, ...], cycle: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Write each chunk's first logits, of dense ones what is kept, and pass all on, so that scoring needs no second look at them."""
    schema = tables.with_metadata(tables.outputs(shape), {"cycle": cycle})
    number = schema.field("logits").type.value_type.to_pandas_dtype()
    with tables.stream(path, schema) as writer:
        for ids, logits in chunks:
            kept = logits[0] if logits[0].ndim <= 2 or logits[0].shape[1:] == shape else thinned(logits[0])
            column = pa.FixedSizeListArray.from_arrays(pa.array(kept.astype(number, copy=False).reshape(-1)), type=schema.field("logits").type)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.int64()), column], schema=schema))
            yield ids, logits


def opened(path: Path, shape: tuple[int, ...]) -> Rows:
    return Rows(path, "logits", shape, tables.outputs(shape))


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    """In double precision: probabilities of confident models differ in the ninth digit, and those differences are ranked."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    probs: np.ndarray = exponents / exponents.sum(axis=1, keepdims=True)
    return probs


def losses(logits_nC: np.ndarray, labels_n: np.ndarray) -> np.ndarray:
    """Cross-entropy of each row; of dense ones the mean over the pixels that have a class, 0 where none has."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    counted = labels_n != NOTHING if labels_n.ndim > 1 else np.ones(len(labels_n), bool)
    picked = np.take_along_axis(shifted, np.where(counted, labels_n, 0)[:, None].astype(np.int64), axis=1)[:, 0]
    result: np.ndarray = np.log(np.exp(shifted).sum(axis=1)) - picked
    if labels_n.ndim == 1:
        return result
    pixels = tuple(range(1, labels_n.ndim))
    mean: np.ndarray = (result * counted).sum(axis=pixels) / np.maximum(counted.sum(axis=pixels), 1)
    return mean
