"""ResNet-18 (He et al., 2016) for photographs: torchvision's own, optionally with its ImageNet weights."""

from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from codline.core.errors import DataError
from codline.models.base import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from codline.models.networks.network import Network


class ResNet18At224(ModelSpec):
    name: Literal["resnet18_224"] = "resnet18_224"
    weights: Literal["none", "imagenet"] = "none"  # pretrained weights of the body; the head is always random
    layers: int = Field(default=4, ge=0, le=4)  # how many of the four layers get them, besides the stem

    def build(self, classes: int, shape: tuple[int, ...]) -> "Network":
        from torch import nn
        from torchvision.models import resnet18

        from codline.models.networks.network import Network

        body = resnet18(num_classes=classes)
        if shape[0] != 3:
            body.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
        head, body.fc = body.fc, nn.Identity()
        return Network(body, head, stages=("layer1", "layer2", "layer3", "layer4"))

    def load_pretrained(self, network: "Network") -> None:
        if self.weights == "none":
            return
        left_out = ("fc.", *(f"layer{i}." for i in range(self.layers + 1, 5)))
        weights = {key: value for key, value in imagenet_weights().items() if not key.startswith(left_out)}
        channels = network.body.get_parameter("conv1.weight").shape[1]
        weights["conv1.weight"] = adapt_stem(weights["conv1.weight"], channels)
        network.body.load_state_dict(network.body.state_dict() | weights)


def imagenet_weights() -> "dict[str, Tensor]":
    import torch
    from torchvision.models import ResNet18_Weights

    published = ResNet18_Weights.IMAGENET1K_V1
    path = Path(torch.hub.get_dir()) / "checkpoints" / published.url.rpartition("/")[2]
    try:
        weights: dict[str, Tensor] = published.get_state_dict(check_hash=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: no weights of ImageNet ({reason}); get {published.url} and put it there") from error
    return weights


def adapt_stem(weight: "Tensor", channels: int) -> "Tensor":
    """Converts an RGB stem to another number of channels, with the same output for gray images."""
    return weight if channels == 3 else weight.sum(1, keepdim=True).repeat(1, channels, 1, 1) / channels
