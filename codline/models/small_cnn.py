"""Four convolutional layers for images of 8 to 32 pixels: trains in seconds on one core."""

from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.models.base import ModelSpec, Network, conv_bn_relu


class SmallCnn(ModelSpec):
    name: Literal["small_cnn"] = "small_cnn"
    width: PositiveInt = 16  # channels of the first layer

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        w = self.width
        body = nn.Sequential(
            *conv_bn_relu(shape[0], w),
            *conv_bn_relu(w, 2 * w),
            nn.MaxPool2d(2),
            *conv_bn_relu(2 * w, 2 * w),
            *conv_bn_relu(2 * w, 4 * w),
            QuadrantAveragePool(),
            nn.Flatten(),
        )
        return Network(body, nn.Linear(16 * w, classes), stages=("2", "5", "9", "12"))


class QuadrantAveragePool(nn.Module):
    """Bitwise equal to nn.AdaptiveAvgPool2d(2), whose gradient has no deterministic CUDA kernel."""

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        return functional.avg_pool2d(images, (-(-height // 2), -(-width // 2)), (height // 2, width // 2))
