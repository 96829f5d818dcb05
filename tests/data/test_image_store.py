"""The image store: small images raw, large ones as files; the same pixels out of both, whatever is kept in between."""

import hashlib
import io
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from codline.core.errors import DataError
from codline.data import decoding, image_store
from codline.data.raw_dataset import EncodedImages, RawDataset

SIDE = 130


def photograph(row: int, side: int = SIDE) -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(row).integers(0, 256, (side, side, 3), np.uint8)).save(data, "png")
    return data.getvalue()


def photographs(count: int, side: int = SIDE) -> EncodedImages:
    return EncodedImages(count, lambda row: photograph(row, side), (3, side, side), "photos/{}.png".format)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("store") / "images.arrow"
    image_store.write(found, np.arange(12) * 2, photographs(12))
    return found


@pytest.mark.parametrize(("side", "kind"), [(128, "raw"), (129, "files")])
def test_images_up_to_128_pixels_are_stored_raw_and_larger_ones_as_files(tmp_path: Path, side: int, kind: str) -> None:
    stored = image_store.write(tmp_path / "images.arrow", np.arange(3), photographs(3, side))
    store = image_store.opened(tmp_path / "images.arrow")
    pixels = [decoding.decoded(photograph(row, side), (3, side, side)) for row in range(3)]
    assert isinstance(store, image_store.Encoded) == (kind == "files")
    assert store.shape == (3, side, side)
    assert np.array_equal(store.take(np.array([2, 0])), np.stack([pixels[2], pixels[0]]))
    contents = [photograph(row, side) for row in range(3)] if kind == "files" else [image.tobytes() for image in pixels]
    assert stored.hashes.tolist() == [hashlib.sha256(content).hexdigest().encode() for content in contents]


def test_an_array_is_stored_as_the_same_bytes_as_files_of_it(tmp_path: Path) -> None:
    pixels = np.stack([decoding.decoded(photograph(row, 16), (3, 16, 16)) for row in range(5)])
    one = image_store.write(tmp_path / "one", np.arange(5), pixels)
    two = image_store.write(tmp_path / "two", np.arange(5), photographs(5, 16))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert one.hashes.tolist() == two.hashes.tolist()


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("cache", [0, 3, 100])
def test_neither_threads_nor_what_is_kept_decoded_change_an_image(
    path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, cache: int
) -> None:
    monkeypatch.setattr(image_store, "THREADS", threads)
    store = image_store.opened(path, cache * 3 * SIDE * SIDE)
    assert isinstance(store, image_store.Encoded)
    rng = np.random.default_rng(0)
    for _ in range(6):
        ids = rng.choice(12, 8) * 2
        taken = store.take(ids)
        assert all(
            np.array_equal(image, decoding.decoded(photograph(i // 2), (3, SIDE, SIDE)))
            for i, image in zip(ids, taken, strict=True)
        )
        assert len(store.kept) <= cache


def test_what_was_taken_last_is_not_decoded_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = image_store.opened(path, 4 * 3 * SIDE * SIDE)
    asked: list[int] = []
    monkeypatch.setattr(
        image_store, "decoded", lambda data, shape: asked.append(len(data)) or decoding.decoded(data, shape)
    )
    for ids, fresh in [
        ([0, 2, 4], 3),
        ([4, 2], 0),
        ([6, 8], 2),
        ([2, 4], 0),
        ([0], 1),
        ([0, 0, 0], 0),
        (range(0, 24, 2), 8),
    ]:
        asked.clear()
        store.take(np.array(ids))
        assert len(asked) == fresh


def test_taking_hands_out_memory_of_one_s_own(path: Path) -> None:
    store = image_store.opened(path)
    store.take(np.array([0]))[:] = 0
    assert store.take(np.array([0])).any()


def test_no_images_and_unknown_ids_are_fine_and_refused(path: Path) -> None:
    store = image_store.opened(path)
    assert store.take(np.empty(0, np.int64)).shape == (0, 3, SIDE, SIDE)
    with pytest.raises(DataError, match=r"images.arrow: has no row with id 1$"):
        store.take(np.array([0, 1]))


def test_record_batches_hold_a_bounded_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_store, "BYTES", 3 * len(photograph(0)))
    image_store.write(tmp_path / "images.arrow", np.arange(10), photographs(10))
    store = image_store.opened(tmp_path / "images.arrow")
    assert np.diff(store.starts).tolist() == [3, 3, 3, 1]
    assert np.array_equal(store.take(np.array([9, 4]))[1], decoding.decoded(photograph(4), (3, SIDE, SIDE)))


@pytest.mark.parametrize("side", [20, SIDE])
def test_values_are_counted_where_they_count(tmp_path: Path, side: int) -> None:
    pool = np.array([True, False, True, True])
    stored = image_store.write(tmp_path / "images.arrow", np.arange(4), photographs(4, side), pool)
    pixels = image_store.opened(tmp_path / "images.arrow").take(np.flatnonzero(pool))
    assert np.array_equal(stored.counts[1], np.bincount(pixels[:, 1].reshape(-1), minlength=256))
    mean, std = image_store.moments(stored.counts)
    assert mean == pytest.approx((pixels / 255).mean((0, 2, 3)), abs=1e-6)
    assert std == pytest.approx((pixels / 255).std((0, 2, 3)), abs=1e-6)
    raw = RawDataset(photographs(4, side), np.zeros(4, np.int32), ~pool, ("a",))
    assert raw.statistics() == (mean, std)


@settings(deadline=None, max_examples=40)
@given(count=st.integers(0, 90), room=st.integers(1, 4000), counted=st.integers(1, 4000), seed=st.integers(0, 99))
def test_what_is_stored_and_counted_does_not_depend_on_how_much_is_worked_on_together(
    count: int, room: int, counted: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pixels, ids, mask = rng.integers(0, 256, (count, 3, 4, 5), np.uint8), np.arange(count) * 3, rng.random(count) < 0.7
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(image_store, "BYTES", room)
        patch.setattr(image_store, "COUNTED", counted)
        stored = image_store.write(Path(folder) / "images.arrow", ids, pixels, mask)
        store = image_store.opened(Path(folder) / "images.arrow")
        assert (store.take(ids) == pixels).all()
        assert np.diff(store.starts[:-1]).tolist() == [-(-room // 60)] * (len(store.starts) - 2)
    assert stored.hashes.tolist() == [hashlib.sha256(one.tobytes()).hexdigest().encode() for one in pixels]
    assert stored.counts.tolist() == [
        np.bincount(plane.ravel(), minlength=256).tolist() for plane in pixels[mask].transpose(1, 0, 2, 3)
    ]


def test_only_files_of_some_size_are_worth_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, threads = image_store.decoded, set[int]()
    monkeypatch.setattr(image_store, "decoded", lambda *call: (threads.add(threading.get_ident()), decoded(*call))[1])
    image_store.write(tmp_path / "images.arrow", np.arange(100), photographs(100, 16))
    assert threads == {threading.get_ident()}
    image_store.write(tmp_path / "images.arrow", np.arange(12), photographs(12))
    assert len(threads) > 1


def test_tiny_and_large_files_come_out_in_their_order(tmp_path: Path) -> None:
    sides = np.random.default_rng(0).choice([9, 20, 120], 200)
    mixed = EncodedImages(200, lambda row: photograph(row, sides[row]), (3, 9, 9))
    image_store.write(tmp_path / "images.arrow", np.arange(200), mixed)
    expected = np.stack([decoding.decoded(photograph(row, sides[row]), (3, 9, 9)) for row in range(200)])
    assert np.array_equal(image_store.opened(tmp_path / "images.arrow").take(np.arange(200)), expected)


def test_progress_is_told_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    told: list[int] = []
    image_store.write(
        tmp_path / "images.arrow", np.arange(600), np.zeros((600, 1, 2, 2), np.uint8), advance=told.append
    )
    assert told == [256, 512, 600]


def test_a_file_that_cannot_be_decoded_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    broken = EncodedImages(
        5, lambda row: photograph(row)[: 99 if row == 3 else None], (3, SIDE, SIDE), "photos/{}.png".format
    )
    with pytest.raises(DataError, match=r"^photos/3.png: not an image that can be read \(.+\)$"):
        image_store.write(tmp_path / "images.arrow", np.arange(5), broken)
    assert not list(tmp_path.iterdir())


def test_an_image_that_was_damaged_in_the_store_is_named(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    where = data.index(photograph(7))
    data[where : where + 200] = bytes(200)
    (tmp_path / "images.arrow").write_bytes(data)
    store = image_store.opened(tmp_path / "images.arrow")
    store.take(np.array([0]))
    with pytest.raises(
        DataError, match=r"images.arrow: id 14: not an image that can be read \(.*\); delete it and run again$"
    ):
        store.take(np.array([14]))
