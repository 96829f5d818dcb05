"""The body of a U-Net with three levels."""

import torch
from torch import Tensor, nn

from codline.models.networks.layers import conv_bn_relu


class UnetBody(nn.Module):
    def __init__(self, inputs: int, w: int) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = level(inputs, w), level(w, 2 * w), level(2 * w, 4 * w)
        self.shrink = nn.MaxPool2d(2, ceil_mode=True)
        self.grow2, self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2), level(4 * w, 2 * w)
        self.grow1, self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2), level(2 * w, w)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down1(images)
        middle = self.down2(self.shrink(fine))
        coarse = self.down3(self.shrink(middle))
        middle = self.up2(concatenate_skip(middle, self.grow2(coarse)))
        features: Tensor = self.up1(concatenate_skip(fine, self.grow1(middle)))
        return features


def level(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*conv_bn_relu(inputs, outputs), *conv_bn_relu(outputs, outputs))


def concatenate_skip(skip: Tensor, upsampled: Tensor) -> Tensor:
    """Along the channels. Pooling rounds odd sizes up, so `upsampled` may be one pixel too large."""
    return torch.cat([skip, upsampled[..., : skip.shape[2], : skip.shape[3]]], 1)
