"""Cityscapes: the official layout through torchvision's own class, the classes that people train on, 300 images set aside."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core.errors import DataError, UserError
from codline.data.raw_dataset import EncodedImages, RawDataset
from codline.datasets.cityscapes import Cityscapes, mapping

CITIES = {"train": {"ulm": 4, "aachen": 5}, "val": {"lindau": 2}}
# number in the files: class
PUBLISHED = {
    7: 0,
    8: 1,
    11: 2,
    12: 3,
    13: 4,
    17: 5,
    19: 6,
    20: 7,
    21: 8,
    22: 9,
    23: 10,
    24: 11,
    25: 12,
    26: 13,
    27: 14,
    28: 15,
    31: 16,
    32: 17,
    33: 18,
}


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


def loaded(root: Path, validation: int = 3, seed: int = 0) -> tuple[RawDataset, EncodedImages]:
    raw = Cityscapes(root=str(root), validation=validation).load(np.random.default_rng(seed))
    assert isinstance(raw.images, EncodedImages)
    return raw, raw.images


def test_the_classes_are_those_that_are_published() -> None:
    numbers, classes = mapping()
    assert {number: int(found) for number, found in enumerate(numbers) if found != 255} == PUBLISHED
    assert len(classes) == 19
    assert (classes[0], classes[5], classes[18]) == ("road", "pole", "bicycle")


def test_training_images_are_the_pool_but_for_those_set_aside_and_official_validation_is_for_testing(
    root: Path,
) -> None:
    raw, images = loaded(root)
    assert (images.count, images.shape) == (8, (3, 8, 16))
    assert raw.is_test.tolist() == [False] * 6 + [True] * 2
    assert images.read(6) == (root / "leftImg8bit/val/lindau/lindau_000000_000019_leftImg8bit.png").read_bytes()


def test_which_are_set_aside_follows_from_the_generator_alone(root: Path) -> None:
    one, again, other = ([loaded(root, seed=seed)[1].read(row) for row in range(6)] for seed in (0, 0, 1))
    assert one == again != other


def test_a_mask_holds_classes_and_255_for_what_nobody_trains_on(root: Path) -> None:
    raw, _ = loaded(root)
    mask = np.asarray(Image.open(io.BytesIO(raw.labels[7])))
    truth = np.asarray(Image.open(root / "gtFine/val/lindau/lindau_000001_000019_gtFine_labelIds.png"))
    assert mask.dtype == np.uint8
    assert mask.flat[:4] == pytest.approx([0, 255, 18, 255])
    assert np.array_equal(mask, np.vectorize(lambda number: PUBLISHED.get(number, 255))(truth))


def test_the_two_archives_are_unpacked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("archives")
    for kind in ("leftImg8bit", "gtFine"):
        shutil.make_archive(str(other / f"{kind}_trainvaltest"), "zip", root, kind)
    assert loaded(other)[0].labels == loaded(root)[0].labels


def test_without_the_files_one_sentence_says_what_to_get_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        loaded(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}: no Cityscapes in it (Dataset not found or incomplete")
    get = "register at www.cityscapes-dataset.com, get leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip, and put both there"
    assert str(refused.value).endswith(f"; {get}")


def test_more_set_aside_than_there_are_is_refused(root: Path) -> None:
    with pytest.raises(
        UserError, match=r"prepare\.dataset\.validation: found 9, but there are only 9 training images$"
    ):
        loaded(root, validation=9)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "_labelIds.png: not found, though its image is there"),
        (b"nothing", "_labelIds.png: not an image that can be read"),
        (Image.new("L", (8, 8)), "_labelIds.png: found 8x8 pixels, expected 16x8 as of the first image"),
    ],
)
def test_a_mask_that_cannot_be_used_is_named(root: Path, content: Image.Image | bytes | None, sentence: str) -> None:
    path = root / "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        content.save(path)
    with pytest.raises(DataError, match=sentence):
        loaded(root)
