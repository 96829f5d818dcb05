"""scores.parquet: a score for every image, written while the pool is scored."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.data import tables


def write_scores(parts: Iterable[tuple[np.ndarray, np.ndarray]], path: Path, ranks_pool: bool) -> None:
    """Write ids and scores. The file does not depend on how they are cut into parts."""
    schema = tables.schema_of_scores(tables.SCORES, ranks_pool)
    part_tables = (pa.table([*part], schema=schema) for part in parts)
    tables.write_chunks(regroup(part_tables, tables.ROW_GROUP_ROWS), schema, path)


def regroup(parts: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of `size`, and the rest; each in one piece of memory, which decides bytes of a file."""
    held, count = list[pa.Table](), 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= size:
            rows, count = pa.concat_tables(held), count % size
            whole = len(rows) - count
            yield from (rows.slice(start, size).combine_chunks() for start in range(0, whole, size))
            held = [rows.slice(whole)]
    if count:
        yield pa.concat_tables(held).combine_chunks()
