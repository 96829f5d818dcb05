"""streets: drawn the same on every machine, near things before far ones, few poles and fewer people."""

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from codline.data.raw_dataset import RawDataset
from codline.datasets.streets import CAR, CLASSES, PERSON, POLE, ROAD, SKY, Scene, Streets


@pytest.fixture(scope="module")
def raw() -> RawDataset:
    return Streets(count=100).load(np.random.default_rng(0))


def seen(raw: RawDataset) -> np.ndarray:
    return np.stack([np.asarray(Image.open(io.BytesIO(mask))) for mask in raw.labels])


def test_the_first_street_is_the_same_to_the_bit_wherever_it_is_drawn() -> None:
    image, mask = Scene(np.random.default_rng([0, 0]), 64, 96).finished()
    assert (
        hashlib.sha256(image.tobytes() + mask.tobytes()).hexdigest()
        == "968eda0414df1f5483ca02fd138cbf05f3f83655a8f0d6f8bdacdd053670ff51"
    )


def test_a_street_does_not_depend_on_how_many_there_are_nor_on_the_split(raw: RawDataset) -> None:
    few = Streets(count=3).load(np.random.default_rng(9))
    assert np.array_equal(few.images, raw.images[:3])
    assert few.labels == raw.labels[:3]
    assert not np.array_equal(Streets(count=3, town=1).load(np.random.default_rng(9)).images, few.images)


def test_a_fifth_of_the_streets_is_for_testing(raw: RawDataset) -> None:
    assert raw.is_test.sum() == 20


def test_poles_and_people_are_rare_and_little_has_no_truth(raw: RawDataset) -> None:
    share = np.bincount(seen(raw).reshape(-1), minlength=256) / seen(raw).size
    assert share[PERSON] < share[POLE] < share[CAR] < 0.06 < share[ROAD]
    assert share[PERSON] > 0.001
    assert 0.02 < share[255] < 0.09
    assert [name for number, name in enumerate(CLASSES) if share[number] == 0] == []


def test_the_sky_is_above_the_road(raw: RawDataset) -> None:
    for mask in seen(raw):
        assert np.flatnonzero((mask == SKY).any(1)).max() < np.flatnonzero((mask == ROAD).any(1)).max()


@pytest.mark.parametrize(("near", "far", "label"), [("car", "person", CAR), ("person", "car", PERSON)])
def test_what_is_near_hides_what_is_far(near: str, far: str, label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(np.random.default_rng([0, 1]), 64, 96)
    things = [scene.at(getattr(scene, near), 0, 180), scene.at(getattr(scene, far), 0, 150)]
    for order in (things, things[::-1]):
        monkeypatch.setattr(scene, "things", lambda order=order: iter(order))
        scene.draw()
        assert scene.label[scene.eye + scene.unit * 180 // 256 - scene.unit // 4, scene.vanishing] == label


@pytest.mark.parametrize(("height", "width"), [(16, 16), (33, 47), (128, 192)])
def test_streets_come_in_other_sizes(height: int, width: int) -> None:
    raw = Streets(count=8, height=height, width=width).load(np.random.default_rng(0))
    assert raw.images.shape == (8, 3, height, width)
    assert seen(raw).shape == (8, height, width)
