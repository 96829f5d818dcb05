"""Tables: checked when they are written and read; broken files raise DataError."""

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from codline.core.errors import DataError
from codline.data import image_store, output_store, tables
from codline.data.image_manifest import read_manifest
from codline.data.raw_dataset import EncodedImages

SCHEMAS = {name: value for name, value in vars(tables).items() if isinstance(value, pa.Schema)}


def scores(count: int = 5) -> pa.Table:
    return pa.table([np.arange(count), np.linspace(0, 1, count)], schema=tables.SCORES)


def labeled(count: int = 50) -> pa.Table:
    columns = [np.arange(count), np.zeros(count, np.int32), ["init"] * count, ["dataset"] * count]
    return pa.table(columns, schema=tables.LABELED)


def write_images(path: Path) -> None:
    """The only shard of a store is written to `path`, the manifest to a directory beside it."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), np.uint8)
    image_store.write_images(path.parent / "store", np.arange(20), pixels)
    (path.parent / "store/00000.arrow").rename(path)


def read_images(path: Path) -> np.ndarray:
    store = image_store.open_shards(read_manifest(path.parent / "store"), lambda _: path, cache=0)
    return store.take(store.ids)


def write_encoded_images(path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 2, (130, 130), np.uint8) * 255).convert("1")
    image.save(data := io.BytesIO(), "png")
    files = EncodedImages(3, lambda _: data.getvalue(), (1, 130, 130))
    image_store.write_images(path.parent / "store", np.arange(3), files)
    (path.parent / "store/00000.arrow").rename(path)


def write_outputs(path: Path) -> None:
    with output_store.output_writer(path, (3,), "c1") as write:
        write(np.arange(9), np.ones((9, 3), np.float32))


READERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "parquet": (
        lambda path: tables.write_table(labeled(), tables.LABELED, path),
        lambda path: tables.read_table(path, tables.LABELED).to_pylist(),
    ),
    "images": (write_images, read_images),
    "image files": (write_encoded_images, read_images),
    "outputs": (write_outputs, lambda path: output_store.open_output_store(path, (3,)).take(np.arange(9))),
}
each_reader = pytest.mark.parametrize(("write", "read"), READERS.values(), ids=READERS)


def test_read_table_returns_what_write_table_wrote(tmp_path: Path) -> None:
    tables.write_table(scores(), tables.SCORES, tmp_path / "scores.parquet")
    assert tables.read_table(tmp_path / "scores.parquet", tables.SCORES).equals(scores())


def test_write_table_uses_no_dictionary_for_columns_that_rarely_repeat(tmp_path: Path) -> None:
    tables.write_table(labeled(9), tables.LABELED, tmp_path / "labeled.parquet")
    tables.write_table(scores(300_000), tables.SCORES, tmp_path / "scores.parquet")
    files = [pq.ParquetFile(tmp_path / f"{name}.parquet").metadata for name in ("labeled", "scores")]
    columns = [[file.row_group(0).column(i) for i in range(file.num_columns)] for file in files]
    has_dictionary = [[column.has_dictionary_page for column in columns_of_file] for columns_of_file in columns]
    assert has_dictionary == [[False, True, True, True], [False, False]]
    assert [file.num_row_groups for file in files] == [1, -(-300_000 // tables.ROW_GROUP_ROWS)]


def test_write_table_writes_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tables.write_table(scores(1000), tables.SCORES, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_read_csv_returns_what_write_csv_wrote(tmp_path: Path) -> None:
    curve = pa.Table.from_pylist(
        [{"epoch": 1, "learning_rate": 0.1, "task_loss": 1 / 3, "unsupervised_loss": 0.0, "accuracy": 0.5}],
        schema=tables.TRAINING,
    )
    tables.write_csv(curve, tables.TRAINING, tmp_path / "training.csv")
    assert tables.read_csv(tmp_path / "training.csv", tables.TRAINING).equals(curve)


@pytest.mark.parametrize("name", SCHEMAS)
def test_write_table_refuses_a_table_of_another_schema(tmp_path: Path, name: str) -> None:
    other = pa.table({"something": [1]})
    for write in (tables.write_table, tables.write_csv):
        with pytest.raises(DataError, match=r"out: expected columns \(\w+ .*\), found \(something int64\)"):
            write(other, SCHEMAS[name], tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", SCHEMAS)
def test_read_table_refuses_a_file_of_another_schema(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"something": [1]}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in.parquet: expected columns \(\w+ .*\), found \(something int64\)"):
        tables.read_table(tmp_path / "in.parquet", SCHEMAS[name])
    (tmp_path / "in.csv").write_text("something\n1\n")
    with pytest.raises(DataError, match=r"in.csv: expected columns"):
        tables.read_csv(tmp_path / "in.csv", SCHEMAS[name])


def test_read_table_refuses_the_right_names_with_the_wrong_types(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "score": [1]}), tmp_path / "in.parquet")
    with pytest.raises(DataError) as refused:
        tables.read_table(tmp_path / "in.parquet", tables.SCORES)
    assert str(refused.value).endswith(
        "in.parquet: expected columns (id int64, score double), found (id int64, score int64)"
    )
    assert refused.value.exit_code == 3


def test_read_table_refuses_null_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "label": pa.array([3, None], pa.int32())}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in\.parquet: column label has 1 empty values, expected none"):
        tables.read_table(tmp_path / "in.parquet", tables.ORACLE)


@pytest.mark.parametrize("ids", [[3, 3], [1, 5, 7, 5], [9, 2, 2, 1]])
def test_read_table_refuses_an_id_that_occurs_twice(tmp_path: Path, ids: list[int]) -> None:
    tables.write_columns([ids, [0] * len(ids)], tables.ORACLE, tmp_path / "in.parquet")
    with pytest.raises(DataError, match=rf"in\.parquet: id {sorted(ids, key=ids.count)[-1]} occurs more than once$"):
        tables.read_table(tmp_path / "in.parquet", tables.ORACLE)


@each_reader
def test_readers_refuse_a_file_truncated_anywhere(
    tmp_path: Path, write: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    write(tmp_path / "complete")
    data = (tmp_path / "complete").read_bytes()
    for length in {*range(0, len(data), 61), len(data) - 1}:
        path = tmp_path / str(length)
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=f"{length}: corrupt or truncated"):
            read(path)


@each_reader
@settings(max_examples=60)
@given(places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3))
def test_readers_survive_flipped_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    write: Callable[[Path], None],
    read: Callable[[Path], object],
    places: list[tuple[float, int]],
) -> None:
    """A changed pixel of an image goes unnoticed; but nothing may crash or raise anything except DataError."""
    path = tmp_path_factory.mktemp("flipped") / "file"
    write(path)
    data = bytearray(path.read_bytes())
    for share, flip in places:
        data[int(share * len(data))] ^= flip
    path.write_bytes(data)
    with suppress(DataError):
        read(path)


def test_read_table_never_returns_changed_values_after_a_bit_flip(tmp_path: Path) -> None:
    """Random numbers do not compress: without page checksums, a flipped bit would be another score."""
    path = tmp_path / "scores.parquet"
    noise = pa.table([np.arange(500), np.random.default_rng(0).random(500)], schema=tables.SCORES)
    tables.write_table(noise, tables.SCORES, path)
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    content = path.read_bytes()
    for place in range(start, start + column.total_compressed_size, 97):
        data = bytearray(content)
        data[place] ^= 1
        path.write_bytes(data)
        with suppress(DataError):
            assert tables.read_table(path, tables.SCORES).equals(noise)


def test_image_store_refuses_a_length_beyond_the_end_of_the_file(tmp_path: Path) -> None:
    """Following it would read past the end of the memory map, which kills the process."""
    path = tmp_path / "images"
    write_images(path)
    data = path.read_bytes()
    pixels = struct.pack("<q", 20 * 4 * 4)
    place = data.rindex(pixels)  # the first occurrence is the buffer's size, the last the number of values
    path.write_bytes(data[:place] + struct.pack("<q", 40 * 4 * 4) + data[place + 8 :])
    with pytest.raises(DataError, match=r"images: corrupt or truncated"):
        read_images(path)


@pytest.mark.parametrize(
    "read",
    [
        lambda path: tables.read_table(path, tables.POOL),
        lambda path: tables.read_csv(path, tables.CURVE),
        tables.map_arrow_file,
    ],
)
def test_readers_name_a_missing_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(DataError, match="none: not found"):
        read(tmp_path / "none")


def test_arrow_writer_leaves_no_file_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), tables.arrow_writer(tmp_path / "out.arrow", tables.ORACLE) as writer:
        writer.write_batch(pa.record_batch([[1], pa.array([2], pa.int32())], schema=tables.ORACLE))
        raise KeyError
    assert not list(tmp_path.iterdir())
