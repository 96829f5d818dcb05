"""CamVid: the same frames and masks from Parquet files and from folders; void pixels are unlabeled."""

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.core.errors import DataError
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.camvid import CLASSES, Camvid

SPLITS = {"train": 5, "val": 2, "test": 3}


def encode_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def make_frames(split: str) -> tuple[list[bytes], list[bytes]]:
    """12x9 pixels; the masks hold every class and void."""
    rng = np.random.default_rng(len(split) * 7 + SPLITS[split])
    images = [encode_png(rng.integers(0, 256, (9, 12, 3), np.uint8)) for _ in range(SPLITS[split])]
    return images, [encode_png(rng.permutation(np.arange(108, dtype=np.uint8) % 12).reshape(9, 12)) for _ in images]


def write_tables(folder: Path) -> Callable[[str], str]:
    for split in SPLITS:
        images, masks = make_frames(split)
        pq.write_table(
            pa.table({"id": range(len(images)), "image": images, "mask": masks}), folder / f"{split}.parquet"
        )
    return lambda split: str(folder / f"{split}.parquet")


def write_folders(folder: Path) -> Callable[[str], str]:
    for split in SPLITS:
        for name, cells in zip((split, f"{split}annot"), make_frames(split), strict=True):
            (folder / name).mkdir()
            for number, cell in enumerate(cells):
                (folder / name / f"0001TP_{number:06}.png").write_bytes(cell)
    return lambda split: str(folder / split)


def load(**parameters: object) -> tuple[RawDataset, EncodedImages]:
    raw = Camvid.model_validate(parameters).load(np.random.default_rng(0))
    assert isinstance(raw.images, EncodedImages)
    return raw, raw.images


def sort(cells: list[bytes]) -> list[bytes]:
    """By id, which follows from the content."""
    return sorted(cells, key=lambda cell: hashlib.sha256(cell).digest())


def test_camvid_names_images_and_watches_the_folders_of_their_masks(tmp_path: Path) -> None:
    path_of = write_folders(tmp_path)
    spec = Camvid(train=[path_of("train")], test=[path_of("test")])
    raw = spec.load(np.random.default_rng(0))
    assert raw.files is not None
    names = [f"{split}/0001TP_{number:06}.png" for split in ("test", "train") for number in range(SPLITS[split])]
    assert sorted(raw.files["file"].to_pylist()) == names
    folders = {"train-1": "train", "test-1": "test", "train-1-masks": "trainannot", "test-1-masks": "testannot"}
    assert spec.input_paths() == {name: str(tmp_path / folder) for name, folder in folders.items()}


def test_camvid_refuses_identical_frames_with_different_masks(tmp_path: Path) -> None:
    path_of = write_folders(tmp_path)
    (tmp_path / "train/copy.png").write_bytes((tmp_path / "train/0001TP_000000.png").read_bytes())
    (tmp_path / "trainannot/copy.png").write_bytes((tmp_path / "trainannot/0001TP_000001.png").read_bytes())
    paths = {"train": [path_of("train")], "test": [path_of("test")]}
    with pytest.raises(DataError, match=r"train/0001TP_000000.png \(mask 0\) and train/copy.png \(mask 1\)"):
        load(**paths)
    assert load(**paths, conflicts="skip")[1].count == 7


def decode_mask(mask: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(mask)))


@pytest.mark.parametrize("write_files", [write_tables, write_folders])
def test_camvid_uses_train_as_the_pool_and_val_only_if_it_is_listed(
    write_files: Callable[[Path], Callable[[str], str]], tmp_path: Path
) -> None:
    path_of = write_files(tmp_path)
    raw, images = load(train=[path_of("train")], test=[path_of("test")])
    assert (images.count, images.shape) == (8, (3, 9, 12))
    read = [images.read(row) for row in range(8)]
    assert [cell for cell, is_test in zip(read, raw.is_test, strict=True) if is_test] == sort(make_frames("test")[0])
    assert read == sort(make_frames("train")[0] + make_frames("test")[0])
    with_val, _ = load(train=[path_of("train"), path_of("val")], test=[path_of("test")])
    assert (len(with_val.is_test), with_val.is_test.sum()) == (10, 3)


@pytest.mark.parametrize("write_files", [write_tables, write_folders])
def test_camvid_keeps_the_masks_except_that_void_becomes_255(
    write_files: Callable[[Path], Callable[[str], str]], tmp_path: Path
) -> None:
    path_of = write_files(tmp_path)
    raw, images = load(train=[path_of("train")], test=[path_of("test")])
    mask_of = {cell: mask for split in ("train", "test") for cell, mask in zip(*make_frames(split), strict=True)}
    for row, label in enumerate(raw.labels):
        mask, original = decode_mask(label), decode_mask(mask_of[images.read(row)])
        assert set(mask.flat) == {*range(11), 255}
        assert np.array_equal(mask == 255, original == 11)
        assert np.array_equal(mask[original < 11], original[original < 11])


def test_camvid_draws_a_smaller_pool(tmp_path: Path) -> None:
    path_of = write_tables(tmp_path)
    raw, images = load(train=[path_of("train")], test=[path_of("test")], pool=2)
    assert {images.read(row) for row in np.flatnonzero(~raw.is_test)} < set(make_frames("train")[0])
    assert (len(raw.is_test), raw.is_test.sum()) == (5, 3)
    assert raw.files is not None
    assert raw.files["id"].to_pylist() == raw.ids.tolist()
    with pytest.raises(
        DataError, match=r"^prepare\.dataset\.pool: found 6, but the training files hold only 5 images$"
    ):
        load(train=[path_of("train")], test=[path_of("test")], pool=6)


def test_camvid_names_a_missing_mask(tmp_path: Path) -> None:
    path_of = write_folders(tmp_path)
    (tmp_path / "trainannot/0001TP_000002.png").unlink()
    with pytest.raises(
        DataError,
        match=r"train/0001TP_000002\.png: has no mask; expected it as .*trainannot/0001TP_000002\.png$",
    ):
        load(train=[path_of("train")], test=[path_of("test")])


IMAGE, MASK = encode_png(np.zeros((9, 12, 3), np.uint8)), encode_png(np.zeros((9, 12), np.uint8))
NARROW_IMAGE, LOW_MASK = encode_png(np.zeros((9, 11, 3), np.uint8)), encode_png(np.zeros((8, 12), np.uint8))
WRONG_NUMBERS = encode_png(np.full((9, 12), 12, np.uint8))


@pytest.mark.parametrize(
    ("image", "mask", "sentence"),
    [
        (b"nothing", MASK, "not an image that can be read"),
        (IMAGE, b"nothing", "not an image that can be read"),
        (NARROW_IMAGE, MASK, "found an image of 11x9 pixels, expected 12x9 as of the first image$"),
        (IMAGE, LOW_MASK, "found a mask of 12x8 pixels, expected 12x9 as of the first image$"),
        (IMAGE, WRONG_NUMBERS, "found a mask with other numbers than those of the 11 classes, 11 and 255$"),
        (IMAGE, IMAGE, "found a mask with other numbers than those of the 11 classes, 11 and 255$"),
    ],
)
def test_camvid_names_an_unusable_frame(tmp_path: Path, image: bytes, mask: bytes, sentence: str) -> None:
    path_of = write_tables(tmp_path)
    pq.write_table(pa.table({"image": [image], "mask": [mask]}), tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=rf"^{tmp_path}/odd\.parquet: row 0: {sentence}"):
        load(train=[path_of("train")], test=[str(tmp_path / "odd.parquet")])


def test_camvid_names_an_unusable_file(tmp_path: Path) -> None:
    path_of = write_tables(tmp_path)
    pq.write_table(pa.table({"image": [b""], "label": [1]}), tmp_path / "labels.parquet")
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "nowhere.parquet": "not found; prepare.dataset names it",
        "labels.parquet": "(not a Parquet file with|found) the columns image",
        "empty": "found no images; prepare.dataset names it",
    }.items():
        with pytest.raises(DataError, match=f"{name}: {sentence}"):
            load(train=[path_of("train")], test=[str(tmp_path / name)])


@pytest.mark.skipif("CODLINE_TEST_DATA" not in os.environ, reason="CODLINE_TEST_DATA names no folder of real data")
def test_camvid_loads_the_real_frames() -> None:
    folder = Path(os.environ["CODLINE_TEST_DATA"]) / "camvid-180x240"
    raw, images = load(train=[str(folder / "train.parquet")], test=[str(folder / "test.parquet")])
    assert (images.count, images.shape, raw.is_test.sum()) == (600, (3, 180, 240), 233)
    counts = np.bincount(np.concatenate([decode_mask(mask).reshape(-1) for mask in raw.labels]), minlength=256)
    assert (counts[: len(CLASSES)] > 0).all()
    assert counts[len(CLASSES) : 255].sum() == 0
    assert counts[CLASSES.index("Road")] > counts[CLASSES.index("Pole")] * 10
    assert Image.open(io.BytesIO(images.read(0))).size == (240, 180)
