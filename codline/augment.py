"""Augmentation of whole batches on their device. B images, C channels, H by W pixels."""

import torch
from pydantic import NonNegativeInt
from torch import Generator, Tensor
from torch.nn import functional

from codline.params import Section


class Augment(Section):
    crop: NonNegativeInt = 0  # pixels of black border on each side before a crop to the old size
    flip: bool = False

    def __call__(self, images_BCHW: Tensor, generator: Generator) -> Tensor:
        if self.flip:
            images_BCHW = flipped(images_BCHW, generator)
        return cropped(images_BCHW, self.crop, generator) if self.crop else images_BCHW


def flipped(images_BCHW: Tensor, generator: Generator) -> Tensor:
    """Mirror about half of the images. Draws on the CPU, so that every device sees the same ones."""
    mirror_B = (torch.rand(len(images_BCHW), generator=generator) < 0.5).to(images_BCHW.device)
    return torch.where(mirror_B[:, None, None, None], images_BCHW.flip(3), images_BCHW)


def cropped(images_BCHW: Tensor, border: int, generator: Generator) -> Tensor:
    """Pad with black and cut each image out again at its own random place, all in one gather."""
    B, _, H, W = images_BCHW.shape
    padded = functional.pad(images_BCHW, [border] * 4)
    top_B, left_B = torch.randint(0, 2 * border + 1, (2, B), generator=generator).to(images_BCHW.device)
    rows_BH = top_B[:, None] + torch.arange(H, device=images_BCHW.device)
    columns_BW = left_B[:, None] + torch.arange(W, device=images_BCHW.device)
    images = torch.arange(B, device=images_BCHW.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[images, rows_BH[:, :, None], columns_BW[:, None, :]].permute(0, 3, 1, 2)
