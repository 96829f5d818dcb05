"""Streets: the same bits on every machine, near objects in front of far ones, few poles and fewer people."""

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


def decode_masks(raw: RawDataset) -> np.ndarray:
    return np.stack([np.asarray(Image.open(io.BytesIO(mask))) for mask in raw.labels])


def test_scene_has_the_same_bits_on_every_machine() -> None:
    image, mask = Scene(np.random.default_rng([0, 0]), 64, 96).render()
    found = hashlib.sha256(image.tobytes() + mask.tobytes()).hexdigest()
    assert found == "968eda0414df1f5483ca02fd138cbf05f3f83655a8f0d6f8bdacdd053670ff51"


def test_streets_do_not_depend_on_their_count_or_the_split(raw: RawDataset) -> None:
    few = Streets(count=3).load(np.random.default_rng(9))
    assert np.array_equal(few.images, raw.images[:3])
    assert few.labels == raw.labels[:3]
    assert not np.array_equal(Streets(count=3, town=1).load(np.random.default_rng(9)).images, few.images)


def test_streets_use_a_fifth_of_the_images_for_testing(raw: RawDataset) -> None:
    assert raw.is_test.sum() == 20


def test_streets_have_few_poles_people_and_unlabeled_pixels(raw: RawDataset) -> None:
    pixels = decode_masks(raw).reshape(-1)
    share = np.bincount(pixels, minlength=256) / pixels.size
    assert share[PERSON] < share[POLE] < share[CAR] < 0.06 < share[ROAD]
    assert share[PERSON] > 0.001
    assert 0.02 < share[255] < 0.09
    assert [name for number, name in enumerate(CLASSES) if share[number] == 0] == []


def test_streets_have_the_sky_above_the_road(raw: RawDataset) -> None:
    for mask in decode_masks(raw):
        assert np.flatnonzero((mask == SKY).any(1)).max() < np.flatnonzero((mask == ROAD).any(1)).max()


@pytest.mark.parametrize(("near", "far", "label"), [("car", "person", CAR), ("person", "car", PERSON)])
def test_scene_draws_near_objects_over_far_ones(
    near: str, far: str, label: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(np.random.default_rng([0, 1]), 64, 96)
    scales = {near: 180, far: 150}
    objects = [scene.at_scale(getattr(scene, f"draw_{name}"), 0, scale) for name, scale in scales.items()]
    for order in (objects, objects[::-1]):
        monkeypatch.setattr(scene, "objects", lambda order=order: iter(order))
        scene.draw()
        assert scene.label[scene.horizon + scene.unit * 180 // 256 - scene.unit // 4, scene.vanishing] == label


@pytest.mark.parametrize(("height", "width"), [(16, 16), (33, 47), (128, 192)])
def test_streets_can_have_other_sizes(height: int, width: int) -> None:
    raw = Streets(count=8, height=height, width=width).load(np.random.default_rng(0))
    assert raw.images.shape == (8, 3, height, width)
    assert decode_masks(raw).shape == (8, height, width)
