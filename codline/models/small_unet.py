"""A U-Net (Ronneberger et al., 2015) of three levels, for segmentation on a CPU. Images may have any sides, odd ones too."""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from codline.models.base import ModelSpec, Network


class SmallUnet(ModelSpec):
    name: Literal["small_unet"] = "small_unet"
    width: PositiveInt = 16  # channels of the first level; each of the next two has twice as many
    task: ClassVar[Literal["classification", "segmentation"]] = "segmentation"

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        return Network(
            Levels(shape[0], self.width),
            nn.Conv2d(self.width, classes, 1),
            stages=("down1", "down2", "down3", "up2", "up1"),
        )


class Levels(nn.Module):
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
        middle = self.up2(beside(middle, self.grow2(coarse)))
        features: Tensor = self.up1(beside(fine, self.grow1(middle)))
        return features


def level(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*layer(inputs, outputs), *layer(outputs, outputs))


def layer(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def beside(known: Tensor, grown: Tensor) -> Tensor:
    """Half of an odd side is rounded up: what grows back is a pixel too long."""
    return torch.cat([known, grown[..., : known.shape[2], : known.shape[3]]], 1)
