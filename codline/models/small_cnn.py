"""Four convolutional layers for images of 8 to 32 pixels: trains in seconds on one core."""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from codline.models.base import ModelSpec

if TYPE_CHECKING:
    from codline.models.networks.network import Network


class SmallCnn(ModelSpec):
    name: Literal["small_cnn"] = "small_cnn"
    width: PositiveInt = 16  # channels of the first layer

    def build(self, classes: int, shape: tuple[int, ...]) -> "Network":
        from torch import nn

        from codline.models.networks.layers import QuadrantAveragePool, conv_bn_relu
        from codline.models.networks.network import Network

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
