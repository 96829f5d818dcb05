"""Augmentation of whole batches, compared with augmenting one image after the other."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from codline.learning.augmentation import Augmentation
from codline.learning.image_transforms import random_flip, random_shift
from codline.models.networks.batch_parts import BatchDraws, part_of_rank, whole_batch

seeds = st.integers(0, 10**6)
batches = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)).map(
    lambda shape: torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)
)


def make_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_draws(images: Tensor, seed: int) -> BatchDraws:
    return BatchDraws(make_generator(seed), whole_batch(len(images)))


def flip_by_hand(images: Tensor, generator: torch.Generator) -> Tensor:
    out = images.clone()
    for image, draw in zip(out, torch.rand(len(images), generator=generator), strict=True):
        if draw < 0.5:
            image[:] = image[:, :, torch.arange(image.shape[2] - 1, -1, -1)]
    return out


def shift_by_hand(images: Tensor, border: int, generator: torch.Generator) -> Tensor:
    """Pixel by pixel; what lies outside of the original image is black."""
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
def test_random_flip_of_a_batch_flips_each_image(images: Tensor, seed: int) -> None:
    assert torch.equal(random_flip(images, make_draws(images, seed)), flip_by_hand(images, make_generator(seed)))


@given(batches, st.integers(1, 3), seeds)
def test_random_shift_of_a_batch_shifts_each_image(images: Tensor, border: int, seed: int) -> None:
    expected = shift_by_hand(images, border, make_generator(seed))
    assert torch.equal(random_shift(images, border, make_draws(images, seed)), expected)


@given(batches, seeds)
def test_augmentation_flips_first_and_shifts_then(images: Tensor, seed: int) -> None:
    ours, theirs = make_generator(seed), make_generator(seed)
    expected = shift_by_hand(flip_by_hand(images, theirs), 1, theirs)
    assert torch.equal(Augmentation(crop=1, flip=True)(images, ours), expected)


@given(batches, st.integers(1, 4), seeds)
def test_augmented_part_of_a_batch_is_that_part_of_the_augmented_batch(
    images: Tensor, processes: int, seed: int
) -> None:
    augmentation, whole_generator = Augmentation(crop=1, flip=True, size=2), make_generator(seed)
    whole = augmentation(images, whole_generator)
    for rank in range(processes):
        part, generator = part_of_rank(len(images), rank, processes), make_generator(seed)
        assert torch.equal(augmentation(images[part.rows], generator, part), whole[part.rows])
        assert torch.equal(generator.get_state(), whole_generator.get_state())


def test_augmentation_of_uint8_is_uint8() -> None:
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert Augmentation(crop=2, flip=True)(images, make_generator(0)).dtype == torch.uint8


def test_augmentation_without_transforms_returns_the_images_and_draws_nothing() -> None:
    images, generator = torch.rand(3, 1, 4, 4), make_generator(0)
    assert Augmentation()(images, generator) is images
    assert torch.equal(generator.get_state(), make_generator(0).get_state())


def test_random_shift_is_uniform_and_random_flip_mirrors_half() -> None:
    images = torch.zeros(2000, 1, 3, 3)
    images[:, :, 1, 1] = 1
    positions = random_shift(images, 1, make_draws(images, 0)).flatten(1).argmax(1).bincount(minlength=9) / 2000
    assert positions.tolist() == pytest.approx([1 / 9] * 9, abs=0.03)
    edges = torch.zeros(2000, 1, 1, 2)
    edges[..., 0] = 1
    assert random_flip(edges, make_draws(edges, 0))[..., 1].mean().item() == pytest.approx(0.5, abs=0.05)
