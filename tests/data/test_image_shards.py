"""Shards of the image store: bounded files with a manifest, the same bytes always, and rows from any of them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from codline.core.errors import DataError, StorageError
from codline.core.files import file_md5, file_sha256
from codline.data import image_shards, image_store
from codline.data.image_manifest import MANIFEST, read_manifest
from tests.data.test_array_store import resident_bytes
from tests.data.test_image_store import photograph, photographs
from tests.learning.test_counts import peak_memory

SHAPE, ROWS, COUNT = (3, 4, 5), 4, 30  # images in a shard, and in all eight
IDS = np.cumsum(np.random.default_rng(0).integers(1, 9, COUNT))
PIXELS = np.random.default_rng(1).integers(0, 256, (COUNT, *SHAPE), np.uint8)


@pytest.fixture(scope="module", params=["pixels", "files"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> image_store.ImageStore:
    """Images of ids IDS in eight shards."""
    path = tmp_path_factory.mktemp(request.param) / "images"
    with pytest.MonkeyPatch.context() as patch:
        write_small_shards(path, patch) if request.param == "pixels" else write_photographs(path, patch)
    store = image_store.open_image_store(path)
    assert len(store.records) == 8
    return store


def write_small_shards(path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(image_store, "BATCH_BYTES", ROWS // 2 * 60)
    patch.setattr(image_shards, "SHARD_BYTES", ROWS * 60)
    image_store.write_images(path, IDS, PIXELS)


def write_photographs(path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(image_store, "BATCH_BYTES", 2 * len(photograph(0)) - 100)
    patch.setattr(image_shards, "SHARD_BYTES", 4 * len(photograph(0)) - 100)
    image_store.write_images(path, IDS, photographs(COUNT))


@settings(deadline=None, max_examples=30)
@given(rows=st.lists(st.integers(0, COUNT - 1), max_size=20))
def test_take_returns_images_in_their_order_across_shards(store: image_store.ImageStore, rows: list[int]) -> None:
    whole = store.take(IDS)
    assert np.array_equal(store.take(IDS[rows]), whole[rows])
    if isinstance(store, image_store.RawImageStore):
        assert np.array_equal(whole, PIXELS)


@pytest.mark.parametrize("missing", [0, int(IDS[-1]) + 1, *np.setdiff1d(np.arange(IDS[0], IDS[-1]), IDS)[::9].tolist()])
def test_take_names_an_id_that_no_shard_has(store: image_store.ImageStore, missing: int) -> None:
    with pytest.raises(DataError, match=rf"images/0000\d.arrow: has no row with id {missing}$"):
        store.take(np.array([IDS[3], missing]))


def test_store_has_the_ids_of_all_shards(store: image_store.ImageStore) -> None:
    assert store.ids.tolist() == IDS.tolist()


def test_store_opens_only_shards_that_are_read_and_keeps_a_bounded_number_open(
    store: image_store.ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    directory = Path(store.shard(0).path).parent
    store = image_store.open_shards(
        read_manifest(directory), lambda shard: (opened.append(shard.name), directory / shard.name)[1], cache=0
    )
    monkeypatch.setattr(image_shards, "MAX_OPEN_SHARDS", 2)
    store.take(IDS[[1, 2, 29, 9]])
    assert opened == ["00000.arrow", "00002.arrow", "00007.arrow"]
    store.take(IDS[[9, 29]])
    assert len(opened) == 3
    store.take(IDS[:1])
    assert opened[3:] == ["00000.arrow"]
    assert len(store.mapped) == 2


def test_manifest_describes_the_shards(store: image_store.ImageStore) -> None:
    directory = Path(store.shard(0).path).parent
    for number, record in enumerate(store.records):
        path, ids = directory / record.name, store.shard(number).ids
        assert (record.rows, record.first_id, record.last_id) == (len(ids), ids[0], ids[-1])
        assert (record.size, record.md5, record.sha256) == (path.stat().st_size, file_md5(path), file_sha256(path))
    names = [MANIFEST, *(record.name for record in store.records)]
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)


def test_write_images_replaces_a_store_with_fewer_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_shards(tmp_path / "images", monkeypatch)
    monkeypatch.undo()
    image_store.write_images(tmp_path / "images", IDS[:3], PIXELS[:3])
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["00000.arrow", MANIFEST]
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_write_images_leaves_the_earlier_store_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_store.write_images(tmp_path / "images", IDS[:3], PIXELS[:3])
    written = list[Path]()

    def fail_at_the_third(path: Path, *arguments: int) -> object:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return describe_shard(path, *arguments)

    describe_shard = image_shards.describe_shard
    monkeypatch.setattr(image_shards, "describe_shard", fail_at_the_third)
    with pytest.raises((StorageError, OSError)):
        write_small_shards(tmp_path / "images", monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["images"]
    assert np.array_equal(image_store.open_image_store(tmp_path / "images").take(IDS[:3]), PIXELS[:3])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_take_bounds_the_pages_of_all_shards_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ids = tmp_path / "images", np.arange(4000)
    monkeypatch.setattr(image_shards, "SHARD_BYTES", 2_000_000)
    monkeypatch.setattr(image_store, "BATCH_BYTES", 500_000)
    image_store.write_images(path, ids, np.zeros((4000, 3, 32, 32), np.uint8))
    monkeypatch.setattr("codline.data.array_store.MAX_RESIDENT_BYTES", 1_000_000)
    store = image_store.open_image_store(path)
    assert len(store.records) > 5
    for chunk in np.split(np.random.default_rng(0).permutation(ids), 40):
        store.take(chunk)
    assert resident_bytes(path) < 4_000_000


def test_write_images_holds_no_more_memory_for_more_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_shards, "SHARD_BYTES", 2**18)
    monkeypatch.setattr(image_store, "BATCH_BYTES", 2**16)
    pixels = np.zeros((8000, 3, 32, 32), np.uint8)

    def peak(count: int) -> int:
        return peak_memory(lambda: image_store.write_images(tmp_path / str(count), np.arange(count), pixels[:count]))

    peak(100)
    assert peak(8000) < 1.1 * peak(800) + 7200 * 80  # the hash of each image, which is returned, and its text


DAMAGES: dict[str, tuple[Callable[[dict[str, object]], object], str]] = {
    "no shards": (lambda manifest: manifest | {"shards": []}, "shards: Tuple should have at least 1 item"),
    "another key": (lambda manifest: manifest | {"colors": 3}, "colors: Extra inputs are not permitted"),
    "a path": (
        lambda manifest: manifest | {"shards": [manifest["shards"][0] | {"name": "../../x.arrow"}]},  # type: ignore[index]
        "shards.0.name: String should match pattern",
    ),
    "no object": (lambda _: [], ": Input should be a valid dictionary"),
}


@pytest.mark.parametrize(("change", "problem"), DAMAGES.values(), ids=DAMAGES)
def test_open_image_store_refuses_a_manifest_that_prepare_does_not_write(
    tmp_path: Path, change: Callable[[dict[str, object]], object], problem: str
) -> None:
    image_store.write_images(tmp_path / "images", IDS, PIXELS)
    path = tmp_path / "images" / MANIFEST
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError) as refused:
        image_store.open_image_store(tmp_path / "images")
    assert str(refused.value).startswith(f"{path}: not what prepare writes: {problem}")


def test_take_refuses_a_shard_of_another_store(tmp_path: Path) -> None:
    for name, count in (("one", 30), ("two", 20)):
        image_store.write_images(tmp_path / name, IDS[:count], PIXELS[:count])
    (tmp_path / "two/00000.arrow").replace(tmp_path / "one/00000.arrow")
    with pytest.raises(DataError, match=r"one/00000.arrow: has 20 images, expected 30 by its manifest$"):
        image_store.open_image_store(tmp_path / "one").take(IDS[:1])
