"""ResNet-18 (He et al., 2016) for 32x32 images: torchvision's, with a 3x3 stem of stride 1 and no max-pooling. Narrower ones, for a CPU, on request."""

from collections import OrderedDict
from itertools import pairwise
from typing import Literal

from pydantic import PositiveInt
from torch import nn

from codline.models.base import ModelSpec, Network


class ResNet18(ModelSpec):
    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64  # channels of the first block; each of the next three has twice as many

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        widths = [self.width << i for i in (0, 0, 1, 2, 3)]
        layers = {f"layer{i}": layer(*pair, stride=2 if i > 1 else 1) for i, pair in enumerate(pairwise(widths), 1)}
        stem = {
            "conv1": nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            "bn1": nn.BatchNorm2d(self.width),
            "relu": nn.ReLU(inplace=True),
        }
        body = nn.Sequential(OrderedDict(stem | layers | {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}))
        for module in body.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return Network(body, nn.Linear(widths[-1], classes), stages=tuple(layers))


def layer(inputs: int, outputs: int, stride: int) -> nn.Module:
    from torchvision.models.resnet import BasicBlock  # two seconds to import, for this model alone

    turned = inputs != outputs or stride != 1
    shortcut = (
        nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if turned else None
    )
    return nn.Sequential(BasicBlock(inputs, outputs, stride, shortcut), BasicBlock(outputs, outputs))
