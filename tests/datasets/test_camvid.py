"""CamVid: out of Parquet files or out of folders, the same frames and masks; void has no truth."""

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


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def frames(split: str) -> tuple[list[bytes], list[bytes]]:
    """12x9 pixels; the masks hold every class and void."""
    rng = np.random.default_rng(len(split) * 7 + SPLITS[split])
    images = [png(rng.integers(0, 256, (9, 12, 3), np.uint8)) for _ in range(SPLITS[split])]
    return images, [png(rng.permutation(np.arange(108, dtype=np.uint8) % 12).reshape(9, 12)) for _ in images]


def tables(folder: Path) -> Callable[[str], str]:
    for split in SPLITS:
        images, masks = frames(split)
        pq.write_table(
            pa.table({"id": range(len(images)), "image": images, "mask": masks}), folder / f"{split}.parquet"
        )
    return lambda split: str(folder / f"{split}.parquet")


def folders(folder: Path) -> Callable[[str], str]:
    for split in SPLITS:
        for name, cells in zip((split, f"{split}annot"), frames(split), strict=True):
            (folder / name).mkdir()
            for number, cell in enumerate(cells):
                (folder / name / f"0001TP_{number:06}.png").write_bytes(cell)
    return lambda split: str(folder / split)


def loaded(**parameters: object) -> tuple[RawDataset, EncodedImages]:
    raw = Camvid.model_validate(parameters).load(np.random.default_rng(0))
    assert isinstance(raw.images, EncodedImages)
    return raw, raw.images


def seen(mask: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(mask)))


@pytest.mark.parametrize("layout", [tables, folders])
def test_train_is_the_pool_and_val_is_set_aside_unless_it_is_asked_for(
    layout: Callable[[Path], Callable[[str], str]], tmp_path: Path
) -> None:
    at = layout(tmp_path)
    raw, images = loaded(train=[at("train")], test=[at("test")])
    assert (images.count, images.shape) == (8, (3, 9, 12))
    assert raw.is_test.tolist() == [False] * 5 + [True] * 3
    assert [images.read(row) for row in range(8)] == frames("train")[0] + frames("test")[0]
    assert loaded(train=[at("train"), at("val")], test=[at("test")])[0].is_test.tolist() == [False] * 7 + [True] * 3


@pytest.mark.parametrize("layout", [tables, folders])
def test_masks_are_as_in_the_files_but_void_has_no_truth(
    layout: Callable[[Path], Callable[[str], str]], tmp_path: Path
) -> None:
    at = layout(tmp_path)
    raw, _ = loaded(train=[at("train")], test=[at("test")])
    for mask, file in zip(raw.labels, frames("train")[1] + frames("test")[1], strict=True):
        assert set(seen(mask).flat) == {*range(11), 255}
        assert np.array_equal(seen(mask) == 255, seen(file) == 11)
        assert np.array_equal(seen(mask)[seen(file) < 11], seen(file)[seen(file) < 11])


def test_a_smaller_pool_is_drawn(tmp_path: Path) -> None:
    at = tables(tmp_path)
    raw, images = loaded(train=[at("train")], test=[at("test")], pool=2)
    assert raw.is_test.tolist() == [False] * 2 + [True] * 3
    assert {images.read(0), images.read(1)} < set(frames("train")[0])
    with pytest.raises(
        DataError, match=r"^prepare\.dataset\.pool: found 6, but the training files hold only 5 images$"
    ):
        loaded(train=[at("train")], test=[at("test")], pool=6)


def test_a_mask_that_is_not_there_is_named(tmp_path: Path) -> None:
    at = folders(tmp_path)
    (tmp_path / "trainannot/0001TP_000002.png").unlink()
    with pytest.raises(
        DataError, match=r"train/0001TP_000002\.png: has no mask; expected it as .*trainannot/0001TP_000002\.png$"
    ):
        loaded(train=[at("train")], test=[at("test")])


@pytest.mark.parametrize(
    ("image", "mask", "sentence"),
    [
        (b"nothing", png(np.zeros((9, 12), np.uint8)), "not an image that can be read"),
        (png(np.zeros((9, 12, 3), np.uint8)), b"nothing", "not an image that can be read"),
        (
            png(np.zeros((9, 11, 3), np.uint8)),
            png(np.zeros((9, 12), np.uint8)),
            "found an image of 11x9 pixels, expected 12x9 as of the first image$",
        ),
        (
            png(np.zeros((9, 12, 3), np.uint8)),
            png(np.zeros((8, 12), np.uint8)),
            "found a mask of 12x8 pixels, expected 12x9 as of the first image$",
        ),
        (
            png(np.zeros((9, 12, 3), np.uint8)),
            png(np.full((9, 12), 12, np.uint8)),
            "found a mask with other numbers than those of the 11 classes, 11 and 255$",
        ),
        (
            png(np.zeros((9, 12, 3), np.uint8)),
            png(np.zeros((9, 12, 3), np.uint8)),
            "found a mask with other numbers than those of the 11 classes, 11 and 255$",
        ),
    ],
)
def test_a_frame_that_cannot_be_used_is_named(tmp_path: Path, image: bytes, mask: bytes, sentence: str) -> None:
    at = tables(tmp_path)
    pq.write_table(pa.table({"image": [image], "mask": [mask]}), tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=rf"^{tmp_path}/odd\.parquet: row 0: {sentence}"):
        loaded(train=[at("train")], test=[str(tmp_path / "odd.parquet")])


def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    at = tables(tmp_path)
    pq.write_table(pa.table({"image": [b""], "label": [1]}), tmp_path / "labels.parquet")
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "nowhere.parquet": "not found; prepare.dataset names it",
        "labels.parquet": "(not a Parquet file with|found) the columns image",
        "empty": "found no images; prepare.dataset names it",
    }.items():
        with pytest.raises(DataError, match=f"{name}: {sentence}"):
            loaded(train=[at("train")], test=[str(tmp_path / name)])


@pytest.mark.skipif("CODLINE_TEST_DATA" not in os.environ, reason="CODLINE_TEST_DATA names no folder of real data")
def test_the_real_frames_are_read() -> None:
    folder = Path(os.environ["CODLINE_TEST_DATA"]) / "camvid-180x240"
    raw, images = loaded(train=[str(folder / "train.parquet")], test=[str(folder / "test.parquet")])
    assert (images.count, images.shape, raw.is_test.sum()) == (600, (3, 180, 240), 233)
    counts = np.bincount(np.concatenate([seen(mask).reshape(-1) for mask in raw.labels]), minlength=256)
    assert (counts[: len(CLASSES)] > 0).all()
    assert counts[len(CLASSES) : 255].sum() == 0
    assert counts[CLASSES.index("Road")] > counts[CLASSES.index("Pole")] * 10
    assert Image.open(io.BytesIO(images.read(0))).size == (240, 180)
