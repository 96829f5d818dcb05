"""Augmentation of whole batches on their device. B images, C channels, H by W pixels."""

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Generator, Tensor
from torch.nn import functional

from codline.core.params import Section


class Augment(Section):
    crop: NonNegativeInt = 0  # pixels of black border on each side before a crop to the old size
    flip: bool = False
    size: PositiveInt | None = (
        None  # of the square that is cut out of each image at a random place; the whole image if left out
    )

    def __call__(self, images_BCHW: Tensor, generator: Generator) -> Tensor:
        if self.flip:
            images_BCHW = flipped(images_BCHW, generator)
        if self.crop:
            images_BCHW = cropped(images_BCHW, self.crop, generator)
        return cut(images_BCHW, self.size, generator) if self.size else images_BCHW

    def pair(self, images_BCHW: Tensor, masks_BHW: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Bytes of images and of their masks, moved alike; what comes into a mask from outside is no class."""
        # No class is 255: one more is 0 in a byte, which is what borders are filled with.
        both_BCHW = self(torch.cat([images_BCHW, masks_BHW[:, None] + 1], 1), generator)
        return both_BCHW[:, :-1], both_BCHW[:, -1] - 1


def flipped(images_BCHW: Tensor, generator: Generator) -> Tensor:
    """Mirror about half of the images. Draws on the CPU, so that every device sees the same ones."""
    mirror_B = (torch.rand(len(images_BCHW), generator=generator) < 0.5).to(images_BCHW.device)
    return torch.where(mirror_B[:, None, None, None], images_BCHW.flip(3), images_BCHW)


def cropped(images_BCHW: Tensor, border: int, generator: Generator) -> Tensor:
    """Pad with black and cut each image out again at its own random place, all in one gather."""
    B, _, H, W = images_BCHW.shape
    padded = functional.pad(images_BCHW, [border] * 4)
    top_B, left_B = torch.randint(0, 2 * border + 1, (2, B), generator=generator).to(images_BCHW.device)
    return windows(padded, top_B, left_B, H, W)


def cut(images_BCHW: Tensor, size: int, generator: Generator) -> Tensor:
    """A square of each image, or as much of it as there is."""
    B, _, H, W = images_BCHW.shape
    h, w = min(size, H), min(size, W)
    top_B, left_B = (
        torch.randint(0, room + 1, (B,), generator=generator).to(images_BCHW.device) for room in (H - h, W - w)
    )
    return windows(images_BCHW, top_B, left_B, h, w)


def windows(images_BCHW: Tensor, top_B: Tensor, left_B: Tensor, height: int, width: int) -> Tensor:
    device = images_BCHW.device
    rows_Bh = top_B[:, None] + torch.arange(height, device=device)
    columns_Bw = left_B[:, None] + torch.arange(width, device=device)
    images = torch.arange(len(images_BCHW), device=device)[:, None, None]
    return images_BCHW.permute(0, 2, 3, 1)[images, rows_Bh[:, :, None], columns_Bw[:, None, :]].permute(0, 3, 1, 2)
