"""Stores of arrays by id: opening reads ids only, `take` copies only requested rows, memory stays bounded."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, strategies as st

from codline.core.errors import DataError
from codline.data import image_store, output_store
from codline.data.array_store import ArrayStore, AscendingIds, MappedBatches
from codline.data.output_store import OutputStore, open_output_store, output_writer

SHAPE = (3, 32, 32)
IDS = np.array([1, 4, 5, 9, 30, 31])


def write_and_open(path: Path, count: int) -> image_store.RawImageStore:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones(SHAPE, np.uint8)
    image_store.write_images(path, np.arange(count), pixels)
    store = image_store.open_image_store(path)
    assert isinstance(store, image_store.RawImageStore)
    return store


@pytest.fixture(scope="module")
def logits(tmp_path_factory: pytest.TempPathFactory) -> OutputStore:
    """Six rows in three chunks; each row holds its id."""
    path = tmp_path_factory.mktemp("rows") / "outputs.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_store, "ROW_GROUP_BYTES", 2 * 2 * 4)
        with output_writer(path, (2,), "c1") as write:
            for ids in np.split(IDS, [3, 4]):
                write(ids, np.repeat(ids[:, None], 2, axis=1).astype(np.float32))
    return open_output_store(path, (2,))


def chunks(store: ArrayStore) -> list[np.ndarray]:
    return [store.chunk(number) for number in range(len(store.chunk_starts) - 1)]


def mapped_addresses(path: Path) -> list[range]:
    """Addresses at which this process has mapped the file."""
    lines = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if f"{path}/" in line]
    return [range(*(int(end, 16) for end in line.split("-"))) for line in lines]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_image_chunks_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "images"
    shard = write_and_open(path, image_store.MAX_BATCH_ROWS + 10).shard(0)
    assert len(chunks(shard)) > 1
    for chunk in chunks(shard):
        address = chunk.__array_interface__["data"][0]
        assert any(address in mapped and address + chunk.nbytes - 1 in mapped for mapped in mapped_addresses(path))


def resident_bytes(path: Path) -> int:
    """Bytes of the mapped file that are in this process's memory."""
    text = Path("/proc/self/smaps").read_text()
    matches = re.finditer(rf"{re.escape(str(path))}/\d+.arrow\nSize:.*?\nRss:\s+(\d+) kB", text, re.DOTALL)
    return 1024 * sum(int(match[1]) for match in matches)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_take_releases_the_pages_that_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "images"
    store = write_and_open(path, 4000)
    batches = [np.arange(start, start + 100) for start in range(0, 4000, 100)]
    monkeypatch.setattr("codline.data.array_store.MAX_RESIDENT_BYTES", 1 << 30)
    first = [store.take(ids) for ids in batches]
    assert resident_bytes(path) > 4000 * 3072 * 0.9
    monkeypatch.setattr("codline.data.array_store.MAX_RESIDENT_BYTES", 1_000_000)
    for ids, before in zip(batches, first, strict=True):
        assert np.array_equal(store.take(ids), before)
    assert resident_bytes(path) < 3_000_000


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_opening_releases_the_pages_that_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "images"
    # With 16 images per batch, the system's read-ahead brings in nearly the whole file along with the ids.
    monkeypatch.setattr("codline.data.image_store.MAX_BATCH_ROWS", 16)
    write_and_open(path, 8000)
    release_pages, resident = MappedBatches.release_pages, list[int]()
    monkeypatch.setattr(
        MappedBatches, "release_pages", lambda shard: (resident.append(resident_bytes(path)), release_pages(shard))[1]
    )
    for limit, least, most in ((1 << 30, 20_000_000, 1 << 30), (1 << 20, 0, 6_000_000)):
        monkeypatch.setattr("codline.data.array_store.MAX_RESIDENT_BYTES", limit)
        resident.clear()
        shard = image_store.open_image_store(path).shard(0)
        assert least < max(resident) < most
        assert resident_bytes(path) == 0
        assert shard.ids.tolist() == list(range(8000))
        del shard


def test_output_store_decompresses_every_row_group_once_in_id_order(
    logits: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_logits, groups = OutputStore.read_logits, list[int]()
    monkeypatch.setattr(
        OutputStore, "read_logits", lambda self, group: (groups.append(group), read_logits(self, group))[1]
    )
    store = open_output_store(logits.path, (2,))
    for ids in np.split(IDS, [1, 5]):
        assert store.take(ids)[:, 0].tolist() == ids.tolist()
    assert groups == [0, 1, 2]


def test_output_writer_writes_the_same_bytes_for_any_batch_size(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(70_000, 10)).astype(np.float32)
    files = []
    for size in (512, 1000, 70_000):
        with output_writer(path := tmp_path / f"{size}.parquet", (10,), "c1") as write:
            for start in range(0, len(logits), size):
                write(np.arange(start, min(start + size, len(logits))), logits[start : start + size])
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]
    assert len(chunks(open_output_store(path, (10,)))) == 3


def test_output_store_is_lossless_and_compressed(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(5000, 10)).astype(np.float32)
    with output_writer(tmp_path / "outputs.parquet", (10,), "c1") as write:
        write(np.arange(5000), logits)
    assert open_output_store(tmp_path / "outputs.parquet", (10,)).take(np.arange(5000)).tobytes() == logits.tobytes()
    assert (tmp_path / "outputs.parquet").stat().st_size < 0.9 * logits.nbytes


def test_opening_allocates_no_memory_for_the_images(tmp_path: Path) -> None:
    path = tmp_path / "images"
    size = sum(chunk.nbytes for chunk in chunks(write_and_open(path, 8000).shard(0)))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    shard = image_store.open_image_store(path).shard(0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(shard) == 8000
    assert size > 20_000_000
    assert peak < 1_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_take_returns_a_copy_that_torch_can_wrap(tmp_path: Path) -> None:
    store = write_and_open(tmp_path / "images", 10)
    taken = store.take(np.array([7, 2]))
    assert not any(np.shares_memory(taken, chunk) for chunk in chunks(store.shard(0)))
    tensor = torch.from_numpy(taken)
    assert tensor.data_ptr() == taken.__array_interface__["data"][0]
    assert tensor.shape == (2, *SHAPE)
    assert tensor[:, 0, 0, 0].tolist() == [7, 2]


def test_take_leaves_no_objects_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codline.data.image_store.BATCH_BYTES", 40 * 3072)
    assert len(chunks(write_and_open(tmp_path / "images", 8000).shard(0))) == 200
    store = image_store.open_image_store(tmp_path / "images")
    store.take(np.arange(10))
    tracemalloc.start()
    for start in range(0, 8000, 100):
        store.take(np.arange(start, start + 100))
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 5000  # a cached view and its batch would take 300 bytes for each of the 200 batches


@given(
    st.sets(st.integers(-20, 60)) | st.sets(st.integers(0, 2**63 - 1) | st.integers(5, 9)),
    st.lists(st.integers(0, 40), max_size=4),
    st.lists(st.integers(-25, 65)),
)
def test_ascending_ids_find_the_same_rows_as_searchsorted(members: set[int], cuts: list[int], asked: list[int]) -> None:
    ids, queries = np.array(sorted(members), np.int64), np.array(asked, np.int64)
    index = AscendingIds(np.split(ids, sorted(min(cut, len(ids)) for cut in cuts)))
    assert index.to_array().tolist() == ids.tolist()
    rows, found = index.find(queries)
    assert found.tolist() == [i in members for i in asked]
    assert rows[found].tolist() == np.searchsorted(ids, queries[found]).tolist()


def test_ascending_ids_store_a_million_consecutive_ids_as_one_run() -> None:
    assert len(AscendingIds(np.split(np.arange(1_000_000), 100)).run_ids) == 1


def test_ascending_ids_store_scattered_ids_as_one_array_without_a_copy() -> None:
    ids = np.sort(np.random.default_rng(0).integers(0, 2**63, 1_000_000))
    chunks = np.split(ids, 100)
    tracemalloc.start()
    index = AscendingIds(chunks)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 8.2e6
    assert peak < 17e6  # the buffer doubles
    assert index.find(ids[::1000])[0].tolist() == list(range(0, 1_000_000, 1000))


@pytest.mark.parametrize("ids", [[1, 1], [3, 2]])
@pytest.mark.parametrize("in_two_chunks", [True, False])
def test_output_store_refuses_ids_that_do_not_ascend(tmp_path: Path, ids: list[int], in_two_chunks: bool) -> None:
    path = tmp_path / "outputs.parquet"
    with output_writer(path, (2,), "c1") as write:
        for part in np.split(np.array(ids), [1] if in_two_chunks else []):
            write(part, np.zeros((len(part), 2), np.float32))
    sentence = f"outputs.parquet: .*expected ascending ids, found {ids[1]} behind one that is not smaller"
    with pytest.raises(DataError, match=sentence):
        open_output_store(path, (2,))


@given(st.lists(st.sampled_from(IDS.tolist()), max_size=12))
def test_take_returns_rows_in_the_requested_order_across_chunks(logits: OutputStore, ids: list[int]) -> None:
    taken = logits.take(np.array(ids, np.int64))
    assert taken.shape == (len(ids), 2)
    assert taken[:, 1].tolist() == ids


@given(st.integers(-5, 40).filter(lambda i: i not in IDS), st.lists(st.sampled_from(IDS.tolist()), max_size=3))
def test_take_names_an_id_that_is_missing(logits: OutputStore, missing: int, others: list[int]) -> None:
    with pytest.raises(DataError, match=f"outputs.parquet: has no row with id {missing}$"):
        logits.take(np.array([*others, missing], np.int64))


def test_output_store_has_the_ids_of_all_chunks(logits: OutputStore) -> None:
    assert [chunk[:, 0].tolist() for chunk in chunks(logits)] == [[1, 4], [5, 9], [30, 31]]
    assert logits.ids.tolist() == IDS.tolist()
    assert logits.contains(np.array([0, 1, 9, 10, 31, 32])).tolist() == [False, True, True, False, True, False]
    assert logits.metadata == {"cycle": "c1"}


def test_output_store_may_be_empty(tmp_path: Path) -> None:
    with output_writer(tmp_path / "outputs.parquet", (4,), "init"):
        pass
    store = open_output_store(tmp_path / "outputs.parquet", (4,))
    assert len(store) == 0
    assert store.take(np.empty(0, np.int64)).shape == (0, 4)


def test_output_store_refuses_another_number_of_classes(logits: OutputStore) -> None:
    with pytest.raises(DataError, match="expected columns"):
        open_output_store(logits.path, (3,))
