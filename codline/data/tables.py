"""The tables that stages exchange: schemas, checked on every read and write."""

import json
import math
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from codline.core.errors import DataError, first_names
from codline.core.files import atomic_write

READ_ROWS = 1 << 20  # rows in a chunk of read_chunks
ROW_GROUP_ROWS = 1 << 17  # a whole row group is encoded in memory before it is written
# Columns whose Parquet dictionary would be larger than the data.
RARELY_REPEATED = {"id", "file", "sha256", "score", "rank"}

ID = pa.field("id", pa.int64(), nullable=False)
LABEL = pa.field("label", pa.int32(), nullable=False)
MASK = pa.field("label", pa.binary(), nullable=False)  # takes the place of LABEL for segmentation
SCORE = pa.field("score", pa.float64(), nullable=False)

POOL = pa.schema([ID, pa.field("sha256", pa.string(), nullable=False)])
ORACLE = pa.schema([ID, LABEL])
VALIDATION = pa.schema([ID, LABEL])
TEST = pa.schema([ID, LABEL])
# Every name of every image: identical files are one image with several names; official datasets have none.
FILES = pa.schema([ID, pa.field("file", pa.string(), nullable=False)])
# The files of an input, sorted by name; the hash of a file that cannot be read is empty.
MANIFEST = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
LABELED = pa.schema(
    [
        ID,
        LABEL,
        pa.field("cycle", pa.string(), nullable=False),
        pa.field("annotator", pa.string(), nullable=False),  # who gave the label; `dataset`: it came with the image
    ]
)
SCORES = pa.schema([ID, SCORE])
QUERY = pa.schema([ID, pa.field("rank", pa.int32(), nullable=False), SCORE])
ANNOTATIONS = pa.schema([ID, LABEL, pa.field("annotator", pa.string(), nullable=False)])
TRAINING = pa.schema(
    [
        ("epoch", pa.int32()),
        ("learning_rate", pa.float64()),
        ("task_loss", pa.float64()),
        ("unsupervised_loss", pa.float64()),
        ("accuracy", pa.float64()),
    ]
)
PREDICTIONS = pa.schema(
    [
        ("id", pa.int64()),
        ("file", pa.string()),  # the first name, "" for an image without one
        ("actual", pa.string()),
        ("predicted", pa.string()),
        ("confidence", pa.float64()),
    ]
)
SEGMENTATION_PREDICTIONS = pa.schema(
    [
        ("id", pa.int64()),
        ("file", pa.string()),
        ("accuracy", pa.float64()),
        ("mean_iou", pa.float64()),
        ("loss", pa.float64()),
    ]
)
# The columns of metrics.json; those of the other task are empty.
CURVE = pa.schema(
    [
        ("cycle", pa.string()),
        ("labels", pa.int64()),
        ("mean_iou", pa.float64()),
        ("mean_iou_low", pa.float64()),
        ("mean_iou_high", pa.float64()),
        ("accuracy", pa.float64()),
        ("accuracy_low", pa.float64()),
        ("accuracy_high", pa.float64()),
        ("balanced_accuracy", pa.float64()),
        ("macro_f1", pa.float64()),
        ("validation_mean_iou", pa.float64()),
        ("validation_accuracy", pa.float64()),
        ("loss", pa.float64()),
        ("calibration_error", pa.float64()),
        ("loss_ratio", pa.float64()),
        ("spearman", pa.float64()),
    ]
)

NEVER_EMPTY = (POOL, SCORES, QUERY)

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def outputs_schema(shape: tuple[int, ...]) -> pa.Schema:
    """Model outputs of `shape` per image. Half precision for dense outputs, whose scores are means over many pixels."""
    number = pa.float32() if len(shape) == 1 else pa.float16()
    return pa.schema([ID, pa.field("logits", pa.list_(number, math.prod(shape)), nullable=False)])


def make_table(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """A table of this schema, in which the label column may hold masks."""
    if "label" in schema.names:
        index = schema.get_field_index("label")
        if np.asarray(columns[index]).dtype == object:
            schema = schema.set(index, MASK)
    return pa.table(columns, schema=schema)


def write_table(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    check_schema(table.schema, schema, path)
    write_chunks([table], table.schema, path)


def write_columns(columns: list[Any], schema: pa.Schema, path: Path) -> None:
    """Write a table whose label column, if there is one, may hold masks."""
    write_table(make_table(columns, schema), schema, path)


def write_chunks(chunks: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    """Write a Parquet file without holding the whole table in memory."""
    repeated = [name for name in schema.names if name not in RARELY_REPEATED]
    settings = {"compression": "zstd", "use_dictionary": repeated, "write_page_checksum": True}
    with atomic_write(path) as part, pq.ParquetWriter(part, schema, **settings) as writer:
        for table in chunks:
            writer.write_table(table, ROW_GROUP_ROWS)


def read_table(path: Path, schema: pa.Schema, *names: str) -> pa.Table:
    """All columns, or only the named ones. Refuses values that cannot be right, in any of codline's tables."""
    with translate_read_errors(path), pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
        check_schema(file.schema_arrow, schema, path)
        table = refuse_values(path, file.read([*names] or None))
    if "id" in table.column_names and schema != FILES:
        refuse_repeated_ids(path, table["id"].to_numpy())
    if schema in NEVER_EMPTY:
        refuse_empty(path, len(table))
    return table


def count_rows(path: Path, schema: pa.Schema) -> int:
    """Number of rows, from the file's metadata."""
    with translate_read_errors(path), pq.ParquetFile(path, memory_map=True) as file:
        check_schema(file.schema_arrow, schema, path)
        rows: int = file.metadata.num_rows
        return rows


def has_class_numbers(path: Path, schema: pa.Schema) -> bool:
    """Whether the labels of this table are class numbers rather than masks."""
    with translate_read_errors(path), pq.ParquetFile(path, memory_map=True) as file:
        check_schema(file.schema_arrow, schema, path)
        return bool(file.schema_arrow.field("label").type == LABEL.type)


def read_chunks(path: Path, schema: pa.Schema, *names: str) -> Iterator[pa.RecordBatch]:
    """Read all columns of a Parquet file, or only the named ones, in chunks of rows.

    Neither memory-mapped nor prefetched, so that memory stays bounded.
    """
    with translate_read_errors(path), pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        check_schema(file.schema_arrow, schema, path)
        for batch in file.iter_batches(READ_ROWS, columns=[*names] or None):
            yield refuse_values(path, batch)


def refuse_values(path: Path, rows: Rows) -> Rows:
    """Refuse missing values, and scores that are not numbers."""
    refuse_nulls(path, rows)
    if "score" in rows.schema.names and "id" in rows.schema.names:
        unscored = rows["id"].to_numpy()[np.isnan(rows["score"].to_numpy())]
        if len(unscored):
            raise DataError(f"{path}: id {unscored[0]} has no score (NaN)")
    return rows


def refuse_repeated_ids(path: Path, ids: np.ndarray) -> None:
    """Takes 2 ms for a million ascending ids; others are sorted first."""
    if (ids[1:] > ids[:-1]).all():
        return
    ordered = np.sort(ids)
    repeated = ordered[1:][np.diff(ordered) == 0]
    if len(repeated):
        raise DataError(f"{path}: id {repeated[0]} occurs more than once")


def refuse_empty(path: Path, rows: int) -> None:
    if not rows:
        raise DataError(f"{path}: has no rows, expected at least one")


def refuse_nulls(path: Path, rows: Rows) -> Rows:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if column.null_count:
            raise DataError(f"{path}: column {name} has {column.null_count} empty values, expected none")
    return rows


def read_foreign_table(path: Path, *names: str, optional: tuple[str, ...] = ()) -> pa.Table:
    """These columns of a Parquet file that was not written by codline; optional ones only if it has them."""
    expected = " and ".join(names)
    try:
        found = pq.read_schema(path).names
        columns = [name for name in (*names, *optional) if name in found]
        table = pq.read_table(path, columns=columns) if set(names) <= set(found) else pa.table({})
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; prepare.dataset names it") from error
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a Parquet file with the columns {expected} ({reason})") from error
    if not set(names) <= set(found):
        raise DataError(f"{path}: found the columns {first_names(found) or 'of an empty table'}, expected {expected}")
    if not len(table):
        raise DataError(f"{path}: has no rows, expected images with the columns {expected}")
    return table


def write_csv(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    check_schema(table.schema, schema, path)
    with atomic_write(path) as part:
        pa.csv.write_csv(table, part, pa.csv.WriteOptions(quoting_style="needed"))


def read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    with translate_read_errors(path):
        table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=schema))
    check_schema(table.schema, schema, path)
    return table


@contextmanager
def arrow_writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """Write an Arrow file batch by batch."""
    with atomic_write(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        yield writer


@contextmanager
def parquet_writer(path: Path, schema: pa.Schema, numbers: str) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file batch by batch, with encodings for ascending ids and a column `numbers` of floats."""
    encodings = {"id": "DELTA_BINARY_PACKED", numbers: "BYTE_STREAM_SPLIT"}
    settings = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with atomic_write(path) as part, pq.ParquetWriter(part, schema, column_encoding=encodings, **settings) as writer:
        yield writer


def map_arrow_file(path: Path) -> tuple[pa.ipc.RecordBatchFileReader, mmap.mmap]:
    """Open an Arrow file through a memory map; the map allows to release pages that were read (madvise)."""
    with translate_read_errors(path), path.open("rb") as file:
        file_map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(file_map)), file_map


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Raise errors of pyarrow and the file system as DataError."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: corrupt or truncated ({reason}); delete it and run again") from error


def check_schema(found: pa.Schema, expected: pa.Schema, path: Path) -> None:
    """Compare names and types of the columns; a label column may hold masks."""
    same_types = all(
        field.type == other.type or (field.name == "label" and field.type == MASK.type and other == LABEL)
        for field, other in zip(found, expected, strict=False)
    )
    if found.names != expected.names or not same_types:
        raise DataError(f"{path}: expected columns ({describe_columns(expected)}), found ({describe_columns(found)})")


def describe_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def schema_of_scores(schema: pa.Schema, ranks_pool: bool) -> pa.Schema:
    """`schema` for scores that rank the whole pool, or for those of a strategy that selects a whole query.

    The latter are the order of the query, and 0 for all other images: the query itself is their only content.
    """
    return schema if ranks_pool else with_metadata(schema, {"ranks_pool": False})


def ranks_pool(path: Path) -> bool:
    """Whether the scores of this file, which are SCORES or QUERY, rank the whole pool."""
    with translate_read_errors(path):
        return bool(read_metadata(pq.read_schema(path)).get("ranks_pool", True))


def read_metadata(schema: pa.Schema) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((schema.metadata or {}).get(b"codline", b"{}"))
    return value


def with_metadata(schema: pa.Schema, value: dict[str, Any]) -> pa.Schema:
    return schema.with_metadata({"codline": json.dumps(value, sort_keys=True)})
