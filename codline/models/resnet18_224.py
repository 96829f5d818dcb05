"""ResNet-18 (He et al., 2016) for photographs: torchvision's own, with a 7x7 stem of stride 2 and max-pooling; weights of ImageNet on request."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from codline.core.errors import DataError
from codline.models.base import ModelSpec, Network


class ResNet18At224(ModelSpec):
    name: Literal["resnet18_224"] = "resnet18_224"
    weights: Literal["none", "imagenet"] = "none"  # where the body starts; the head is drawn in any case
    layers: int = Field(default=4, ge=0, le=4)  # so many of the body's four start there, and the stem

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        from torchvision.models import resnet18  # two seconds to import, for this model alone

        body = resnet18(num_classes=classes)
        if shape[0] != 3:
            body.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
        head, body.fc = body.fc, nn.Identity()
        return Network(body, head, stages=("layer1", "layer2", "layer3", "layer4"))

    def start(self, network: Network) -> None:
        if self.weights == "none":
            return
        left_out = ("fc.", *(f"layer{i}." for i in range(self.layers + 1, 5)))
        found = {key: value for key, value in imagenet().items() if not key.startswith(left_out)}
        found["conv1.weight"] = seeing(found["conv1.weight"], network.body.get_parameter("conv1.weight").shape[1])
        network.body.load_state_dict(network.body.state_dict() | found)


def imagenet() -> dict[str, Tensor]:
    from torchvision.models import ResNet18_Weights

    weights = ResNet18_Weights.IMAGENET1K_V1
    place = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    try:
        found: dict[str, Tensor] = weights.get_state_dict(check_hash=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        raise DataError(
            f"{place}: no weights of ImageNet ({' '.join(str(error).split())}); get {weights.url} and put it there"
        ) from error
    return found


def seeing(stem: Tensor, channels: int) -> Tensor:
    """A stem for colour, changed for images of another number of channels: what is grey gives the same in all of them."""
    return stem if channels == 3 else stem.sum(1, keepdim=True).repeat(1, channels, 1, 1) / channels
