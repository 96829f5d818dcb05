"""outputs.arrow: what a model says of every unlabelled image, written as it streams by. Shapes: n rows of a chunk, C classes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.rows import Rows

Chunk = tuple[np.ndarray, list[np.ndarray]]  # ids; logits of one or more networks


def write(path: Path, classes: int, cycle: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Write each chunk's first logits and pass all on, so that scoring needs no second look at them."""
    schema = tables.with_metadata(tables.outputs(classes), {"cycle": cycle})
    with tables.stream(path, schema) as writer:
        for ids, logits in chunks:
            column = pa.FixedSizeListArray.from_arrays(pa.array(logits[0].reshape(-1)), type=schema.field("logits").type)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.int64()), column], schema=schema))
            yield ids, logits


def opened(path: Path, classes: int) -> Rows:
    return Rows(path, "logits", (classes,), tables.outputs(classes))


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    """In double precision: probabilities of confident models differ in the ninth digit, and those differences are ranked."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    probs: np.ndarray = exponents / exponents.sum(axis=1, keepdims=True)
    return probs


def losses(logits_nC: np.ndarray, labels_n: np.ndarray) -> np.ndarray:
    """Cross-entropy of each row."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    picked = np.take_along_axis(shifted, labels_n[:, None].astype(np.int64), axis=1)[:, 0]
    result: np.ndarray = np.log(np.exp(shifted).sum(axis=1)) - picked
    return result
