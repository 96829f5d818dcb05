"""Cityscapes: the official layout, read by torchvision, with the 19 classes of the benchmark."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core.errors import DataError
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.cityscapes import Cityscapes, read_class_table

CITIES = {"train": {"ulm": 4, "aachen": 5}, "val": {"lindau": 2}}
# The ids in the mask files of classes 0 to 18.
PUBLISHED_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
PUBLISHED = {file_id: number for number, file_id in enumerate(PUBLISHED_IDS)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Frames of 16x8 pixels; the first four of a mask's pixels are 7, 4, 33 and the number of the frame."""
    rng = np.random.default_rng(0)
    for split, cities in CITIES.items():
        for city, count in cities.items():
            image_folder, mask_folder = (tmp_path / kind / split / city for kind in ("leftImg8bit", "gtFine"))
            image_folder.mkdir(parents=True)
            mask_folder.mkdir(parents=True)
            for number in range(count):
                name, mask = f"{city}_{number:06}_000019", rng.integers(0, 34, (8, 16), np.uint8)
                mask.flat[:4] = (7, 4, 33, number)
                Image.fromarray(rng.integers(0, 256, (8, 16, 3), np.uint8)).save(
                    image_folder / f"{name}_leftImg8bit.png"
                )
                Image.fromarray(mask).save(mask_folder / f"{name}_gtFine_labelIds.png")
                (mask_folder / f"{name}_gtFine_polygons.json").write_text("{}")
    return tmp_path


def load(root: Path) -> tuple[RawDataset, EncodedImages]:
    raw = Cityscapes(root=str(root)).load(np.random.default_rng(0))
    assert isinstance(raw.images, EncodedImages)
    return raw, raw.images


def test_read_class_table_returns_the_published_classes() -> None:
    numbers, classes = read_class_table()
    assert {number: int(found) for number, found in enumerate(numbers) if found != 255} == PUBLISHED
    assert len(classes) == 19
    assert (classes[0], classes[5], classes[18]) == ("road", "pole", "bicycle")


def test_cityscapes_tests_on_the_official_validation_images(root: Path) -> None:
    raw, images = load(root)
    assert (images.count, images.shape) == (11, (3, 8, 16))
    assert raw.is_test.tolist() == [False] * 9 + [True] * 2
    assert images.read(9) == (root / "leftImg8bit/val/lindau/lindau_000000_000019_leftImg8bit.png").read_bytes()


def test_cityscapes_masks_hold_classes_and_255_for_ignored_ids(root: Path) -> None:
    raw, _ = load(root)
    mask = np.asarray(Image.open(io.BytesIO(raw.labels[10])))
    truth = np.asarray(Image.open(root / "gtFine/val/lindau/lindau_000001_000019_gtFine_labelIds.png"))
    assert mask.dtype == np.uint8
    assert mask.flat[:4] == pytest.approx([0, 255, 18, 255])
    assert np.array_equal(mask, np.vectorize(lambda number: PUBLISHED.get(number, 255))(truth))


def test_cityscapes_unpacks_the_two_archives(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("archives")
    for kind in ("leftImg8bit", "gtFine"):
        shutil.make_archive(str(other / f"{kind}_trainvaltest"), "zip", root, kind)
    assert load(other)[0].labels == load(root)[0].labels


def test_cityscapes_without_files_says_what_to_download_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        load(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}: no Cityscapes in it (Dataset not found or incomplete")
    archives = "leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip"
    hint = f"register at www.cityscapes-dataset.com, get {archives}, and put both there"
    assert str(refused.value).endswith(f"; {hint}")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "_labelIds.png: not found, though its image is there"),
        (b"nothing", "_labelIds.png: not an image that can be read"),
        (Image.new("L", (8, 8)), "_labelIds.png: found 8x8 pixels, expected 16x8 as of the first image"),
    ],
)
def test_cityscapes_names_an_unusable_mask(root: Path, content: Image.Image | bytes | None, sentence: str) -> None:
    path = root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        content.save(path)
    with pytest.raises(DataError, match=sentence):
        load(root)
