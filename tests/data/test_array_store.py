"""Rows by id: opening reads the ids, taking copies just what was asked for; images are views of the mapped file, outputs are unpacked once."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, strategies as st

from codline.core.errors import DataError
from codline.data import image_store, output_store, tables
from codline.data.array_store import Arrays, Runs

SHAPE = (3, 32, 32)
IDS = np.array([1, 4, 5, 9, 30, 31])


def stored(path: Path, count: int) -> Arrays:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones(SHAPE, np.uint8)
    image_store.write(path, np.arange(count), pixels)
    return image_store.opened(path)


@pytest.fixture(scope="module")
def logits(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """Six rows in three chunks; each row holds its id."""
    path = tmp_path_factory.mktemp("rows") / "outputs.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_store, "GROUP", 2 * 2 * 4)
        with output_store.writing(path, (2,), "c1") as keep:
            for ids in np.split(IDS, [3, 4]):
                keep(ids, np.repeat(ids[:, None], 2, axis=1).astype(np.float32))
    return output_store.opened(path, (2,))


def chunks(rows: Arrays) -> list[np.ndarray]:
    return [rows.chunk(number) for number in range(len(rows.starts) - 1)]


def mappings(path: Path) -> list[range]:
    """Where this process has mapped the file into its memory."""
    lines = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    return [range(*(int(end, 16) for end in line.split("-"))) for line in lines]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped where")
def test_chunks_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "images.arrow"
    rows = stored(path, image_store.BATCH + 10)
    assert len(chunks(rows)) > 1
    for chunk in chunks(rows):
        address = chunk.__array_interface__["data"][0]
        assert any(address in mapped and address + chunk.nbytes - 1 in mapped for mapped in mappings(path))


def resident(path: Path) -> int:
    """Bytes of the file that this process has in memory."""
    text = Path("/proc/self/smaps").read_text()
    return 1024 * sum(
        int(found[1]) for found in re.finditer(rf"{re.escape(str(path))}\nSize:.*?\nRss:\s+(\d+) kB", text, re.DOTALL)
    )


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is in memory")
def test_what_was_read_does_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "images.arrow"
    rows = stored(path, 4000)
    everything = [np.arange(start, start + 100) for start in range(0, 4000, 100)]
    monkeypatch.setattr("codline.data.array_store.HELD", 1 << 30)
    first = [rows.take(ids) for ids in everything]
    assert resident(path) > 4000 * 3072 * 0.9
    monkeypatch.setattr("codline.data.array_store.HELD", 1_000_000)
    for ids, before in zip(everything, first, strict=True):
        assert np.array_equal(rows.take(ids), before)
    assert resident(path) < 3_000_000


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is in memory")
def test_opening_leaves_little_of_the_file_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "images.arrow"
    monkeypatch.setattr(
        "codline.data.image_store.BATCH", 16
    )  # ids between few images: to read them is to read nearly everything
    stored(path, 8000)
    found = {}
    for held in (1 << 30, 1 << 20):
        monkeypatch.setattr("codline.data.array_store.HELD", held)
        rows = image_store.opened(path)
        found[held] = resident(path)
        assert rows.ids.tolist() == list(range(8000))
        del rows
    assert found[1 << 30] > 20_000_000
    assert found[1 << 20] < 6_000_000


def test_going_through_the_outputs_in_their_order_unpacks_every_group_once(
    logits: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack, unpacked = output_store.Kept.unpacked, list[int]()
    monkeypatch.setattr(
        output_store.Kept, "unpacked", lambda self, number: (unpacked.append(number), unpack(self, number))[1]
    )
    rows = output_store.opened(logits.path, (2,))
    for some in np.split(IDS, [1, 5]):
        assert rows.take(some)[:, 0].tolist() == some.tolist()
    assert unpacked == [0, 1, 2]


def test_outputs_are_the_same_bytes_in_whatever_portions_they_come(tmp_path: Path) -> None:
    said = np.random.default_rng(0).normal(size=(70_000, 10)).astype(np.float32)
    files = []
    for size in (512, 1000, 70_000):
        with output_store.writing(path := tmp_path / f"{size}.parquet", (10,), "c1") as keep:
            for start in range(0, len(said), size):
                keep(np.arange(start, min(start + size, len(said))), said[start : start + size])
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]
    assert len(chunks(output_store.opened(path, (10,)))) == 3


def test_outputs_come_back_to_the_bit_and_take_less_room_than_they_are(tmp_path: Path) -> None:
    said = np.random.default_rng(0).normal(size=(5000, 10)).astype(np.float32)
    with output_store.writing(tmp_path / "outputs.parquet", (10,), "c1") as keep:
        keep(np.arange(5000), said)
    assert output_store.opened(tmp_path / "outputs.parquet", (10,)).take(np.arange(5000)).tobytes() == said.tobytes()
    assert (tmp_path / "outputs.parquet").stat().st_size < 0.9 * said.nbytes


def test_opening_takes_no_memory_for_the_images(tmp_path: Path) -> None:
    path = tmp_path / "images.arrow"
    size = sum(chunk.nbytes for chunk in chunks(stored(path, 8000)))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    rows = image_store.opened(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 8000
    assert size > 20_000_000
    assert peak < 1_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_taking_copies_into_memory_that_torch_can_use_as_it_is(tmp_path: Path) -> None:
    rows = stored(tmp_path / "images.arrow", 10)
    taken = rows.take(np.array([7, 2]))
    assert not any(np.shares_memory(taken, chunk) for chunk in chunks(rows))
    tensor = torch.from_numpy(taken)
    assert tensor.data_ptr() == taken.__array_interface__["data"][0]
    assert tensor.shape == (2, *SHAPE)
    assert tensor[:, 0, 0, 0].tolist() == [7, 2]


def test_going_through_the_images_leaves_nothing_behind_but_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codline.data.image_store.BYTES", 40 * 3072)
    rows = stored(tmp_path / "images.arrow", 8000)
    assert len(chunks(rows)) == 200
    again = image_store.opened(rows.path)
    again.take(np.arange(10))
    tracemalloc.start()
    for start in range(0, 8000, 100):
        again.take(np.arange(start, start + 100))
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 5000  # a view and its batch would be 300 bytes for each of 200


@given(st.sets(st.integers(-20, 60)), st.lists(st.integers(0, 40), max_size=4), st.lists(st.integers(-25, 65)))
def test_runs_find_what_a_search_among_all_ids_finds(members: set[int], cuts: list[int], asked: list[int]) -> None:
    ids, wanted = np.array(sorted(members), np.int64), np.array(asked, np.int64)
    runs = Runs(np.split(ids, sorted(min(cut, len(ids)) for cut in cuts)))
    assert runs.all().tolist() == ids.tolist()
    rows, there = runs.found(wanted)
    assert there.tolist() == [i in members for i in asked]
    assert rows[there].tolist() == np.searchsorted(ids, wanted[there]).tolist()


def test_a_million_consecutive_ids_are_one_run() -> None:
    assert len(Runs(np.split(np.arange(1_000_000), 100)).firsts) == 1


@pytest.mark.parametrize("ids", [[1, 1], [3, 2]])
@pytest.mark.parametrize("apart", [True, False])
def test_ids_that_do_not_ascend_are_refused(tmp_path: Path, ids: list[int], apart: bool) -> None:
    path = tmp_path / "outputs.parquet"
    with output_store.writing(path, (2,), "c1") as keep:
        for part in np.split(np.array(ids), [1] if apart else []):
            keep(part, np.zeros((len(part), 2), np.float32))
    with pytest.raises(
        DataError, match=f"outputs.parquet: .*expected ascending ids, found {ids[1]} behind one that is not smaller"
    ):
        output_store.opened(path, (2,))


@given(st.lists(st.sampled_from(IDS.tolist()), max_size=12))
def test_rows_come_in_the_order_asked_for_across_chunks(logits: Arrays, asked: list[int]) -> None:
    taken = logits.take(np.array(asked, np.int64))
    assert taken.shape == (len(asked), 2)
    assert taken[:, 1].tolist() == asked


@given(st.integers(-5, 40).filter(lambda i: i not in IDS), st.lists(st.sampled_from(IDS.tolist()), max_size=3))
def test_an_id_that_is_not_there_is_named(logits: Arrays, missing: int, others: list[int]) -> None:
    with pytest.raises(DataError, match=f"outputs.parquet: has no row with id {missing}$"):
        logits.take(np.array([*others, missing], np.int64))


def test_ids_and_chunks_stay_together(logits: Arrays) -> None:
    assert [chunk[:, 0].tolist() for chunk in chunks(logits)] == [[1, 4], [5, 9], [30, 31]]
    assert logits.ids.tolist() == IDS.tolist()
    assert logits.has(np.array([0, 1, 9, 10, 31, 32])).tolist() == [False, True, True, False, True, False]
    assert logits.metadata == {"cycle": "c1"}


def test_a_file_without_rows_can_be_opened(tmp_path: Path) -> None:
    with output_store.writing(tmp_path / "outputs.parquet", (4,), "init"):
        pass
    rows = output_store.opened(tmp_path / "outputs.parquet", (4,))
    assert len(rows) == 0
    assert rows.take(np.empty(0, np.int64)).shape == (0, 4)


def test_outputs_of_another_number_of_classes_are_refused(logits: Arrays) -> None:
    with pytest.raises(DataError, match="expected columns"):
        output_store.opened(logits.path, (3,))


def test_an_arrow_file_without_a_shape_holds_no_images(tmp_path: Path) -> None:
    with tables.stream(tmp_path / "images.arrow", tables.SCORES):
        pass
    with pytest.raises(DataError, match="expected images with their shape"):
        image_store.opened(tmp_path / "images.arrow")
