"""ResNet-18 (He et al., 2016) for 32x32 images: torchvision's, with a 3x3 stem of stride 1 and without max-pooling."""

from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from codline.models.base import ModelSpec

if TYPE_CHECKING:
    from codline.models.networks.network import Network


class ResNet18(ModelSpec):
    """Weights have torch's default initialization, as the COD authors' network does.

    torchvision's own (kaiming_normal_, fan_out) makes the untrained network favor a class, all the more the narrower it
    is; COD's first-cycle rules `smallest` and `independent` need one whose outputs are nearly uniform.
    """

    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64  # channels of the first layer, doubled in each of the next three; fewer are faster on a CPU

    def build(self, classes: int, shape: tuple[int, ...]) -> "Network":
        from torch import nn

        from codline.models.networks.layers import conv_bn_relu, residual_layer
        from codline.models.networks.network import Network

        widths = [self.width << i for i in (0, 0, 1, 2, 3)]
        layers = {
            f"layer{i}": residual_layer(inputs, outputs, stride=2 if i > 1 else 1)
            for i, (inputs, outputs) in enumerate(pairwise(widths), 1)
        }
        stem = dict(zip(("conv1", "bn1", "relu"), conv_bn_relu(shape[0], self.width), strict=True))
        body = nn.Sequential(OrderedDict(stem | layers | {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}))
        return Network(body, nn.Linear(widths[-1], classes), stages=tuple(layers))
