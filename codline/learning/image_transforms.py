"""Random flips and crops of whole batches on their device. B images, C channels, H by W pixels."""

import torch
from torch import Tensor
from torch.nn import functional

from codline.models.networks.batch_parts import BatchDraws
from codline.models.networks.transfer import to_device


def random_flip(images_BCHW: Tensor, draws: BatchDraws) -> Tensor:
    """Mirror about half of the images. The draws are on the CPU, so that they are the same for every device."""
    mirror_B = to_device(draws.uniform() < 0.5, images_BCHW.device)
    return torch.where(mirror_B[:, None, None, None], images_BCHW.flip(3), images_BCHW)


def random_shift(images_BCHW: Tensor, border: int, draws: BatchDraws) -> Tensor:
    """Pad with black, then crop each image to its original size at a random position of its own."""
    H, W = images_BCHW.shape[2:]
    padded = functional.pad(images_BCHW, [border] * 4)
    top_B, left_B = (to_device(draws.integers(2 * border + 1), images_BCHW.device) for _ in range(2))
    return crop_windows(padded, top_B, left_B, H, W)


def random_square(images_BCHW: Tensor, size: int, draws: BatchDraws) -> Tensor:
    """Crop each image to a square at a random position; a side shorter than `size` stays whole."""
    H, W = images_BCHW.shape[2:]
    h, w = min(size, H), min(size, W)
    top_B = to_device(draws.integers(H - h + 1), images_BCHW.device)
    left_B = to_device(draws.integers(W - w + 1), images_BCHW.device)
    return crop_windows(images_BCHW, top_B, left_B, h, w)


def crop_windows(images_BCHW: Tensor, top_B: Tensor, left_B: Tensor, height: int, width: int) -> Tensor:
    """Cut one window out of each image, all in a single gather."""
    device = images_BCHW.device
    rows_Bh = top_B[:, None] + torch.arange(height, device=device)
    columns_Bw = left_B[:, None] + torch.arange(width, device=device)
    images = torch.arange(len(images_BCHW), device=device)[:, None, None]
    return images_BCHW.permute(0, 2, 3, 1)[images, rows_Bh[:, :, None], columns_Bw[:, None, :]].permute(0, 3, 1, 2)
