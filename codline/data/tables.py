"""Every table that crosses from one stage to another: its schema, checked on read and on write."""

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

from codline.core.errors import DataError
from codline.core.files import whole

Some = TypeVar("Some", pa.Table, pa.RecordBatch)
STRETCH = 1 << 20  # rows read together
GROUP = 1 << 17  # rows written together: what is encoded of them waits in memory
DISTINCT = {
    "id",
    "sha256",
    "score",
    "rank",
}  # hardly a value twice: a dictionary of them would take more room than they do, in memory, too

ID = pa.field("id", pa.int64(), nullable=False)
LABEL = pa.field("label", pa.int32(), nullable=False)  # of segmentation it is a mask instead
MASK = pa.field("label", pa.binary(), nullable=False)
SCORE = pa.field("score", pa.float64(), nullable=False)

POOL = pa.schema([ID, pa.field("sha256", pa.string(), nullable=False)])
ORACLE = pa.schema([ID, LABEL])
TEST = pa.schema([ID, LABEL])
LABELED = pa.schema([ID, LABEL, pa.field("cycle", pa.string(), nullable=False)])
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
    [("id", pa.int64()), ("actual", pa.string()), ("predicted", pa.string()), ("confidence", pa.float64())]
)
IMAGES = pa.schema(
    [("id", pa.int64()), ("accuracy", pa.float64()), ("mean_iou", pa.float64()), ("loss", pa.float64())]
)  # predictions of segmentation
CURVE = pa.schema(
    [
        ("cycle", pa.string()),
        ("labels", pa.int64()),
        ("accuracy", pa.float64()),
        ("mean_iou", pa.float64()),
        ("loss", pa.float64()),
        ("calibration_error", pa.float64()),
        ("spearman", pa.float64()),
    ]
)


def outputs(shape: tuple[int, ...]) -> pa.Schema:
    """What a model says of every unlabelled image. Of dense outputs half the digits: they are many, and only their differences over many pixels matter."""
    number = pa.float32() if len(shape) == 1 else pa.float16()
    return pa.schema([ID, pa.field("logits", pa.list_(number, math.prod(shape)), nullable=False)])


def made(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """A table whose labels, if it has any, may be masks."""
    if "label" in schema.names:
        place = schema.get_field_index("label")
        if np.asarray(columns[place]).dtype == object:
            schema = schema.set(place, MASK)
    return pa.table(columns, schema=schema)


def write(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    check(table.schema, schema, path)
    write_parts([table], table.schema, path)


def write_parts(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    """A table that need not be in memory as a whole."""
    repeating = [name for name in schema.names if name not in DISTINCT]
    with (
        whole(path) as part,
        pq.ParquetWriter(
            part, schema, compression="zstd", use_dictionary=repeating, write_page_checksum=True
        ) as writer,
    ):
        for table in parts:
            writer.write_table(table, GROUP)


def read(path: Path, schema: pa.Schema, *names: str) -> pa.Table:
    """All columns, or these."""
    with opened(path), pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
        check(file.schema_arrow, schema, path)
        return complete(path, file.read([*names] or None))


def count(path: Path, schema: pa.Schema) -> int:
    """How many rows there are; none of them is read."""
    with opened(path), pq.ParquetFile(path, memory_map=True) as file:
        check(file.schema_arrow, schema, path)
        rows: int = file.metadata.num_rows
        return rows


def stretches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows, some at a time, so that memory does not grow with the file: neither mapped, nor read ahead."""
    with opened(path), pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        check(file.schema_arrow, schema, path)
        for batch in file.iter_batches(STRETCH):
            yield complete(path, batch)


def complete(path: Path, rows: Some) -> Some:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if column.null_count:
            raise DataError(f"{path}: column {name} has {column.null_count} empty values, expected none")
    return rows


def foreign(path: Path, *names: str) -> pa.Table:
    """These columns of a Parquet file that somebody else wrote."""
    wanted = " and ".join(names)
    try:
        table = pq.read_table(path, columns=list(names))
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; prepare.dataset names it") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: not a Parquet file with the columns {wanted} ({' '.join(str(error).split())})"
        ) from error
    if table.column_names != list(names) or not len(table):
        raise DataError(
            f"{path}: found {len(table)} rows of {', '.join(table.column_names) or 'no columns'}, expected images with the columns {wanted}"
        )
    return table


def write_csv(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    check(table.schema, schema, path)
    with whole(path) as part:
        pa.csv.write_csv(table, part, pa.csv.WriteOptions(quoting_style="needed"))


def read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    with opened(path):
        table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=schema))
    check(table.schema, schema, path)
    return table


@contextmanager
def stream(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """Write an Arrow file batch by batch, so that no table need fit in memory."""
    with whole(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        yield writer


@contextmanager
def packed(path: Path, schema: pa.Schema, numbers: str) -> Iterator[pq.ParquetWriter]:
    """The same for a Parquet file of ids and `numbers` that hardly repeat: steps from id to id, and the first bytes of all numbers, then the second."""
    encodings = {"id": "DELTA_BINARY_PACKED", numbers: "BYTE_STREAM_SPLIT"}
    settings = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with whole(path) as part, pq.ParquetWriter(part, schema, column_encoding=encodings, **settings) as writer:
        yield writer


def mapped(path: Path) -> tuple[pa.ipc.RecordBatchFileReader, mmap.mmap]:
    """Open an Arrow file without reading it: the operating system brings in what is touched. Through the map, it can be told to let go of it."""
    with opened(path), path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(view)), view


@contextmanager
def opened(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path}: corrupt or truncated ({' '.join(str(error).split())}); delete it and run again"
        ) from error


def check(found: pa.Schema, expected: pa.Schema, path: Path) -> None:
    alike = [
        one.type == other.type or (one.name, one.type, other) == ("label", MASK.type, LABEL)
        for one, other in zip(found, expected, strict=False)
    ]
    if found.names != expected.names or not all(alike):
        raise DataError(f"{path}: expected columns ({columns(expected)}), found ({columns(found)})")


def columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def metadata(schema: pa.Schema) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((schema.metadata or {}).get(b"codline", b"{}"))
    return value


def with_metadata(schema: pa.Schema, value: dict[str, Any]) -> pa.Schema:
    return schema.with_metadata({"codline": json.dumps(value, sort_keys=True)})
