"""Augmentation of whole batches on their device. B images, C channels, H by W pixels."""

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Generator, Tensor
from torch.nn import functional

from codline.core.params import Section


class Augmentation(Section):
    crop: NonNegativeInt = 0  # pixels of black border added on each side before a random crop to the original size
    flip: bool = False
    size: PositiveInt | None = None  # side of a square cut out at a random position; default: the whole image

    def __call__(self, images_BCHW: Tensor, generator: Generator) -> Tensor:
        if self.flip:
            images_BCHW = random_flip(images_BCHW, generator)
        if self.crop:
            images_BCHW = random_shift(images_BCHW, self.crop, generator)
        return random_square(images_BCHW, self.size, generator) if self.size else images_BCHW

    def with_masks(self, images_BCHW: Tensor, masks_BHW: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Augment uint8 images and their masks alike. Padding has no class (255) in the masks."""
        # Padding is filled with 0. Adding 1 makes the value for no class, 255, wrap around to 0.
        both_BCHW = self(torch.cat([images_BCHW, masks_BHW[:, None] + 1], 1), generator)
        return both_BCHW[:, :-1], both_BCHW[:, -1] - 1


def random_flip(images_BCHW: Tensor, generator: Generator) -> Tensor:
    """Mirror about half of the images. The draws are on the CPU, so that they are the same for every device."""
    mirror_B = (torch.rand(len(images_BCHW), generator=generator) < 0.5).to(images_BCHW.device)
    return torch.where(mirror_B[:, None, None, None], images_BCHW.flip(3), images_BCHW)


def random_shift(images_BCHW: Tensor, border: int, generator: Generator) -> Tensor:
    """Pad with black, then crop each image to its original size at a random position of its own."""
    B, _, H, W = images_BCHW.shape
    padded = functional.pad(images_BCHW, [border] * 4)
    top_B, left_B = torch.randint(0, 2 * border + 1, (2, B), generator=generator).to(images_BCHW.device)
    return crop_windows(padded, top_B, left_B, H, W)


def random_square(images_BCHW: Tensor, size: int, generator: Generator) -> Tensor:
    """Crop each image to a square at a random position; a side shorter than `size` stays whole."""
    B, _, H, W = images_BCHW.shape
    h, w = min(size, H), min(size, W)
    top_B = torch.randint(0, H - h + 1, (B,), generator=generator).to(images_BCHW.device)
    left_B = torch.randint(0, W - w + 1, (B,), generator=generator).to(images_BCHW.device)
    return crop_windows(images_BCHW, top_B, left_B, h, w)


def crop_windows(images_BCHW: Tensor, top_B: Tensor, left_B: Tensor, height: int, width: int) -> Tensor:
    """Cut one window out of each image, all in a single gather."""
    device = images_BCHW.device
    rows_Bh = top_B[:, None] + torch.arange(height, device=device)
    columns_Bw = left_B[:, None] + torch.arange(width, device=device)
    images = torch.arange(len(images_BCHW), device=device)[:, None, None]
    return images_BCHW.permute(0, 2, 3, 1)[images, rows_Bh[:, :, None], columns_Bw[:, None, :]].permute(0, 3, 1, 2)
