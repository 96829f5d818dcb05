"""The image store: small images raw, large ones as files, with the same pixels from both whatever is cached."""

import filecmp
import hashlib
import io
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from codline.core.errors import DataError
from codline.data import decoding, image_store, pixel_statistics, raw_images
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
    path = tmp_path_factory.mktemp("store") / "images"
    image_store.write_images(path, np.arange(12) * 2, photographs(12))
    return path


@pytest.mark.parametrize(("side", "kind"), [(128, "raw"), (129, "files")])
def test_write_images_stores_up_to_128_pixels_raw_and_larger_images_as_files(
    tmp_path: Path, side: int, kind: str
) -> None:
    stored = image_store.write_images(tmp_path / "images", np.arange(3), photographs(3, side))
    store = image_store.open_image_store(tmp_path / "images")
    pixels = [decoding.decode_image(photograph(row, side), (3, side, side)) for row in range(3)]
    assert isinstance(store, image_store.EncodedImageStore) == (kind == "files")
    assert store.shape == (3, side, side)
    assert np.array_equal(store.take(np.array([2, 0])), np.stack([pixels[2], pixels[0]]))
    contents = [photograph(row, side) for row in range(3)] if kind == "files" else [image.tobytes() for image in pixels]
    assert stored.hashes.tolist() == [hashlib.sha256(content).hexdigest().encode() for content in contents]


def test_write_images_writes_the_same_bytes_for_an_array_and_for_files_of_it(tmp_path: Path) -> None:
    pixels = np.stack([decoding.decode_image(photograph(row, 16), (3, 16, 16)) for row in range(5)])
    one = image_store.write_images(tmp_path / "one", np.arange(5), pixels)
    two = image_store.write_images(tmp_path / "two", np.arange(5), photographs(5, 16))
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["00000.arrow", "manifest.json"]
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", names, shallow=False) == (names, [], [])
    assert one.hashes.tolist() == two.hashes.tolist()


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("cache", [0, 3, 100])
def test_encoded_image_store_returns_the_same_pixels_for_any_threads_and_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, cache: int
) -> None:
    monkeypatch.setattr(image_store, "THREADS", threads)
    store = image_store.open_image_store(path, cache * 3 * SIDE * SIDE)
    assert isinstance(store, image_store.EncodedImageStore)
    rng = np.random.default_rng(0)
    for _ in range(6):
        ids = rng.choice(12, 8) * 2
        for i, image in zip(ids, store.take(ids), strict=True):
            assert np.array_equal(image, decoding.decode_image(photograph(i // 2), (3, SIDE, SIDE)))
        assert len(store.cache) <= cache


def test_encoded_image_store_does_not_decode_cached_images_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = image_store.open_image_store(path, 4 * 3 * SIDE * SIDE)
    decoded: list[int] = []
    monkeypatch.setattr(
        image_store, "decode_image", lambda *call: decoded.append(len(call[0])) or decoding.decode_image(*call)
    )
    takes = [([0, 2, 4], 3), ([4, 2], 0), ([6, 8], 2), ([2, 4], 0), ([0], 1), ([0, 0, 0], 0), (range(0, 24, 2), 8)]
    for ids, count in takes:
        decoded.clear()
        store.take(np.array(ids))
        assert len(decoded) == count


def test_encoded_image_store_returns_copies_of_cached_images(path: Path) -> None:
    store = image_store.open_image_store(path)
    store.take(np.array([0]))[:] = 0
    assert store.take(np.array([0])).any()


def test_encoded_image_store_takes_no_ids_and_refuses_unknown_ids(path: Path) -> None:
    store = image_store.open_image_store(path)
    assert store.take(np.empty(0, np.int64)).shape == (0, 3, SIDE, SIDE)
    with pytest.raises(DataError, match=r"images/00000.arrow: has no row with id 1$"):
        store.take(np.array([0, 1]))


def test_write_images_bounds_the_bytes_of_a_record_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_store, "BATCH_BYTES", 3 * len(photograph(0)))
    image_store.write_images(tmp_path / "images", np.arange(10), photographs(10))
    store = image_store.open_image_store(tmp_path / "images")
    assert np.diff(store.shard(0).chunk_starts).tolist() == [3, 3, 3, 1]
    assert np.array_equal(store.take(np.array([9, 4]))[1], decoding.decode_image(photograph(4), (3, SIDE, SIDE)))


@pytest.mark.parametrize("side", [20, SIDE])
def test_write_images_counts_the_pixel_values_of_the_selected_images(tmp_path: Path, side: int) -> None:
    pool = np.array([True, False, True, True])
    stored = image_store.write_images(tmp_path / "images", np.arange(4), photographs(4, side), pool)
    pixels = image_store.open_image_store(tmp_path / "images").take(np.flatnonzero(pool))
    assert np.array_equal(stored.pixel_counts[1], np.bincount(pixels[:, 1].reshape(-1), minlength=256))
    mean, std = pixel_statistics.mean_and_std(stored.pixel_counts)
    assert mean == pytest.approx((pixels / 255).mean((0, 2, 3)), abs=1e-6)
    assert std == pytest.approx((pixels / 255).std((0, 2, 3)), abs=1e-6)
    raw = RawDataset(photographs(4, side), np.zeros(4, np.int32), ~pool, ("a",))
    assert raw.channel_statistics() == (mean, std)


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 90),
    batch_bytes=st.integers(1, 4000),
    histogram_bytes=st.integers(1, 4000),
    seed=st.integers(0, 99),
)
def test_write_images_gives_the_same_result_for_any_batch_and_histogram_size(
    count: int, batch_bytes: int, histogram_bytes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pixels, ids, mask = rng.integers(0, 256, (count, 3, 4, 5), np.uint8), np.arange(count) * 3, rng.random(count) < 0.7
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(image_store, "BATCH_BYTES", batch_bytes)
        patch.setattr(pixel_statistics, "HISTOGRAM_BYTES", histogram_bytes)
        stored = image_store.write_images(Path(folder) / "images", ids, pixels, mask)
        store = image_store.open_image_store(Path(folder) / "images")
        assert (store.take(ids) == pixels).all()
        starts = store.shard(0).chunk_starts
        assert np.diff(starts[:-1]).tolist() == [-(-batch_bytes // 60)] * (len(starts) - 2)
    assert stored.hashes.tolist() == [hashlib.sha256(image.tobytes()).hexdigest().encode() for image in pixels]
    assert stored.pixel_counts.tolist() == [
        np.bincount(plane.ravel(), minlength=256).tolist() for plane in pixels[mask].transpose(1, 0, 2, 3)
    ]


def test_write_images_decodes_tiny_files_in_the_calling_thread_and_others_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_image, threads = raw_images.decode_image, set[int]()
    monkeypatch.setattr(
        raw_images, "decode_image", lambda *call: (threads.add(threading.get_ident()), decode_image(*call))[1]
    )
    image_store.write_images(tmp_path / "images", np.arange(100), photographs(100, 16))
    assert threads == {threading.get_ident()}
    image_store.write_images(tmp_path / "images", np.arange(12), photographs(12))
    assert len(threads) > 1


def test_write_images_keeps_the_order_of_tiny_and_large_files(tmp_path: Path) -> None:
    sides = np.random.default_rng(0).choice([9, 20, 120], 200)
    mixed = EncodedImages(200, lambda row: photograph(row, sides[row]), (3, 9, 9))
    image_store.write_images(tmp_path / "images", np.arange(200), mixed)
    expected = np.stack([decoding.decode_image(photograph(row, sides[row]), (3, 9, 9)) for row in range(200)])
    assert np.array_equal(image_store.open_image_store(tmp_path / "images").take(np.arange(200)), expected)


def test_write_images_reports_progress_every_256_images_and_at_the_end(tmp_path: Path) -> None:
    progress: list[int] = []
    pixels = np.zeros((600, 1, 2, 2), np.uint8)
    image_store.write_images(tmp_path / "images", np.arange(600), pixels, advance=progress.append)
    assert progress == [256, 512, 600]


def test_write_images_names_a_file_that_cannot_be_decoded_and_leaves_nothing(tmp_path: Path) -> None:
    intact = photographs(5)
    broken = replace(intact, read=lambda row: intact.read(row)[: 99 if row == 3 else None])
    with pytest.raises(DataError, match=r"^photos/3.png: not an image that can be read \(.+\)$"):
        image_store.write_images(tmp_path / "images", np.arange(5), broken)
    assert not list(tmp_path.iterdir())


def test_encoded_image_store_names_a_damaged_image(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "images")
    shard = tmp_path / "images/00000.arrow"
    data = bytearray(shard.read_bytes())
    where = data.index(photograph(7))
    data[where : where + 200] = bytes(200)
    shard.write_bytes(data)
    store = image_store.open_image_store(tmp_path / "images")
    store.take(np.array([0]))
    sentence = r"images/00000.arrow: id 14: not an image that can be read \(.*\); delete it and run again$"
    with pytest.raises(DataError, match=sentence):
        store.take(np.array([14]))
