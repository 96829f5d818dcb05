"""Strong augmentation of whole batches, after RandAugment (Cubuk et al., 2020) and cutout (DeVries and Taylor, 2017).

Every image gets two random operations of random magnitude, then a square is erased. Pixels are 0 to 255. An operation
is given the images that drew it and their magnitudes, -1 to 1. B images, C channels, H by W pixels.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from codline.models.networks.batch_parts import BatchDraws
from codline.models.networks.transfer import to_device

COUNT = 2  # operations per image
GREY = 127  # of the erased square
CUTOUT = 0.5  # largest side of the erased square, as a share of the image's shorter side
Operation = Callable[[Tensor, Tensor], Tensor]
LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in a grey image


def augment_strongly(images_BCHW: Tensor, strength: float, draws: BatchDraws) -> Tensor:
    """uint8 images in, uint8 images out. The draws are on the CPU, so that they are the same for every device."""
    device = images_BCHW.device
    operations = [each for each in OPERATIONS if each is not saturation or images_BCHW.shape[1] == len(LUMA)]
    pixels_BCHW = images_BCHW.float()
    for _ in range(COUNT):
        drawn_B = draws.integers(len(operations))
        magnitude_B = to_device(strength * (2 * draws.uniform() - 1), device)
        for number, operation in enumerate(operations):
            rows = (drawn_B == number).nonzero().squeeze(1)
            if len(rows):
                rows = to_device(rows, device)
                changed = operation(pixels_BCHW[rows], magnitude_B[rows, None, None, None])
                pixels_BCHW[rows] = changed.round().clamp(0, 255)
    return erase_square(pixels_BCHW.to(torch.uint8), strength, draws)


def erase_square(images_BCHW: Tensor, strength: float, draws: BatchDraws) -> Tensor:
    """The square's center is any pixel, so part of it may be outside."""
    H, W = images_BCHW.shape[2:]
    half = strength * CUTOUT * min(H, W) / 2
    is_inside = []
    for length in (H, W):
        center_B = to_device(draws.integers(length), images_BCHW.device)
        distance = torch.arange(length, device=images_BCHW.device) - center_B[:, None]
        is_inside.append((distance >= -half) & (distance < half))
    return images_BCHW.masked_fill(is_inside[0][:, None, :, None] & is_inside[1][:, None, None, :], GREY)


def identity(images: Tensor, _: Tensor) -> Tensor:
    return images


def brightness(images: Tensor, magnitude: Tensor) -> Tensor:
    return images * (1 + 0.9 * magnitude)


def contrast(images: Tensor, magnitude: Tensor) -> Tensor:
    return torch.lerp(images.mean((1, 2, 3), keepdim=True), images, 1 + 0.9 * magnitude)


def saturation(images: Tensor, magnitude: Tensor) -> Tensor:
    grey = (images * to_device(torch.tensor(LUMA), images.device)[:, None, None]).sum(1, keepdim=True)
    return torch.lerp(grey, images, 1 + 0.9 * magnitude)


def sharpness(images: Tensor, magnitude: Tensor) -> Tensor:
    blurred = functional.avg_pool2d(functional.pad(images, [1] * 4, mode="replicate"), 3, stride=1)
    return torch.lerp(blurred, images, 1 + 0.9 * magnitude)


def posterize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Drop up to four of the eight bits."""
    step = 2 ** (4 * magnitude.abs()).round()
    return (images / step).floor() * step


def solarize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Invert pixels that are bright."""
    return torch.where(images < 256 * (1 - magnitude.abs()), images, 255 - images)


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to the range of 0 to 255; one of a single value stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) * 255 / (high - low).clamp(min=1), images)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Replace each pixel by its rank in its channel, from 0 for the darkest to 255 for the brightest."""
    planes = images.flatten(2).long()
    counts = torch.zeros(*planes.shape[:2], 256, device=images.device)
    counts.scatter_add_(2, planes, torch.ones(planes.shape, device=images.device))
    darkest = counts.gather(2, planes.amin(2, keepdim=True))
    ranks = (counts.cumsum(2) - darkest) * 255 / (planes.shape[2] - darkest).clamp(min=1)
    return ranks.gather(2, planes).view_as(images)


def warp(
    images: Tensor,
    magnitude: Tensor,
    *,
    turn: float = 0,
    shear: tuple[float, float] = (0, 0),
    shift: tuple[float, float] = (0, 0),
) -> Tensor:
    """Rotate by `turn` radians, shear and shift (as shares of the image, x and y) at a magnitude of 1."""
    B, _, H, W = images.shape
    m = magnitude.flatten()
    cos, sin = (turn * m).cos(), (turn * m).sin()
    # Positions are -1 to 1 in both directions, so an image that is not square needs its aspect ratio in a rotation.
    rows = [cos, shear[0] * m - sin * H / W, 2 * shift[0] * m, shear[1] * m + sin * W / H, cos, 2 * shift[1] * m]
    grid = functional.affine_grid(torch.stack(rows, 1).view(B, 2, 3), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


OPERATIONS: tuple[Operation, ...] = (
    identity,
    brightness,
    contrast,
    saturation,
    sharpness,
    posterize,
    solarize,
    autocontrast,
    equalize,
    partial(warp, turn=math.radians(30)),
    partial(warp, shear=(0.3, 0)),
    partial(warp, shear=(0, 0.3)),
    partial(warp, shift=(0.3, 0)),
    partial(warp, shift=(0, 0.3)),
)
