"""A four-layer convolutional network for images of digits' size (8 to 32 pixels): trains in seconds on one core."""

from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.models.base import ModelSpec, Network


class SmallCnn(ModelSpec):
    name: Literal["small_cnn"] = "small_cnn"
    width: PositiveInt = 16

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        w = self.width
        body = nn.Sequential(
            *layer(shape[0], w),
            *layer(w, 2 * w),
            nn.MaxPool2d(2),
            *layer(2 * w, 2 * w),
            *layer(2 * w, 4 * w),
            Quarters(),
            nn.Flatten(),
        )
        return Network(body, nn.Linear(16 * w, classes), stages=("2", "5", "9", "12"))


class Quarters(nn.Module):
    """The mean over each quarter of an image: nn.AdaptiveAvgPool2d(2) to the bit, but its gradient has no deterministic kernel on CUDA."""

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        return functional.avg_pool2d(images, (-(-height // 2), -(-width // 2)), (height // 2, width // 2))


def layer(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
