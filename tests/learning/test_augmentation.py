"""Crop and flip of whole batches, against one image after the other."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from codline.learning.augmentation import Augment, cropped, flipped

seeds = st.integers(0, 10**6)
batches = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)).map(
    lambda shape: torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)
)


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mirrored_by_hand(images: Tensor, generator: torch.Generator) -> Tensor:
    out = images.clone()
    for image, draw in zip(out, torch.rand(len(images), generator=generator), strict=True):
        if draw < 0.5:
            image[:] = image[:, :, torch.arange(image.shape[2] - 1, -1, -1)]
    return out


def cropped_by_hand(images: Tensor, border: int, generator: torch.Generator) -> Tensor:
    """Pixel by pixel: what lies outside of the old image is black."""
    count, _, height, width = images.shape
    tops, lefts = torch.randint(0, 2 * border + 1, (2, count), generator=generator).tolist()
    out = torch.zeros_like(images)
    for i in range(count):
        for y in range(height):
            for x in range(width):
                from_y, from_x = y + tops[i] - border, x + lefts[i] - border
                if 0 <= from_y < height and 0 <= from_x < width:
                    out[i, :, y, x] = images[i, :, from_y, from_x]
    return out


@given(batches, seeds)
def test_flipping_a_batch_is_flipping_each_image(images: Tensor, seed: int) -> None:
    assert torch.equal(flipped(images, random(seed)), mirrored_by_hand(images, random(seed)))


@given(batches, st.integers(1, 3), seeds)
def test_cropping_a_batch_is_cropping_each_image(images: Tensor, border: int, seed: int) -> None:
    assert torch.equal(cropped(images, border, random(seed)), cropped_by_hand(images, border, random(seed)))


@given(batches, seeds)
def test_both_together_flip_first_and_crop_then(images: Tensor, seed: int) -> None:
    ours, theirs = random(seed), random(seed)
    assert torch.equal(
        Augment(crop=1, flip=True)(images, ours), cropped_by_hand(mirrored_by_hand(images, theirs), 1, theirs)
    )


def test_bytes_stay_bytes() -> None:
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert Augment(crop=2, flip=True)(images, random(0)).dtype == torch.uint8


def test_no_augmentation_leaves_images_and_random_stream_alone() -> None:
    images, generator = torch.rand(3, 1, 4, 4), random(0)
    assert Augment()(images, generator) is images
    assert torch.equal(generator.get_state(), random(0).get_state())


def test_every_place_is_drawn_and_about_half_are_mirrored() -> None:
    images = torch.zeros(2000, 1, 3, 3)
    images[:, :, 1, 1] = 1
    places = cropped(images, 1, random(0)).flatten(1).argmax(1).bincount(minlength=9) / 2000
    assert places.tolist() == pytest.approx([1 / 9] * 9, abs=0.03)
    edges = torch.zeros(2000, 1, 1, 2)
    edges[..., 0] = 1
    assert flipped(edges, random(0))[..., 1].mean().item() == pytest.approx(0.5, abs=0.05)
