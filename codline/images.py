"""The image store: every image once, raw, in one memory-mapped Arrow file."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError
from codline.rows import Rows

BATCH = 4096  # images in a record batch: large enough to be quick, small enough to ingest in bounded memory


def schema(shape: tuple[int, ...]) -> pa.Schema:
    fields = [tables.ID, pa.field("image", pa.list_(pa.uint8(), int(np.prod(shape))), nullable=False)]
    return tables.with_metadata(pa.schema(fields), {"shape": list(shape)})


def write(path: Path, ids: np.ndarray, images: np.ndarray) -> None:
    """Store uint8 images of shape (N, channels, height, width) under ascending ids."""
    layout = schema(tuple(int(n) for n in images.shape[1:]))
    with tables.stream(path, layout) as writer:
        for start in range(0, len(ids), BATCH):
            some = slice(start, start + BATCH)
            pixels = pa.FixedSizeListArray.from_arrays(pa.array(images[some].reshape(-1)), type=layout.field("image").type)
            writer.write_batch(pa.record_batch([pa.array(ids[some], pa.int64()), pixels], schema=layout))


def opened(path: Path) -> Rows:
    with tables.opened(path):
        shape = tuple(tables.metadata(tables.mapped(path).schema).get("shape", ()))
    if len(shape) != 3:
        raise DataError(f"{path}: expected images with their shape (channels, height, width), found none; run prepare again")
    return Rows(path, "image", shape, schema(shape))
