"""outputs.arrow: what a model says of every unlabelled image, written as it streams by. n rows of a chunk, C classes; dense ones have two axes more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.dense import NOTHING, thinned
from codline.rows import Rows


@contextmanager
def writing(path: Path, shape: tuple[int, ...], cycle: str) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """Yield keep(ids, logits): of dense logits, it keeps the pixels that are kept."""
    schema = tables.with_metadata(tables.outputs(shape), {"cycle": cycle})
    kind = schema.field("logits").type
    with tables.stream(path, schema) as writer:

        def keep(ids: np.ndarray, logits: np.ndarray) -> None:
            kept = logits if logits.ndim <= 2 or logits.shape[1:] == shape else thinned(logits)
            column = pa.FixedSizeListArray.from_arrays(pa.array(kept.astype(kind.value_type.to_pandas_dtype(), copy=False).reshape(-1)), type=kind)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.int64()), column], schema=schema))

        yield keep


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
