"""ResNet-18 (He et al., 2016) for 32x32 images: torchvision's, with a 3x3 stem of stride 1 and no max-pooling."""

from typing import Literal

from torch import nn

from codline.models.base import ModelSpec, Network


class ResNet18(ModelSpec):
    name: Literal["resnet18"] = "resnet18"

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        from torchvision.models import resnet18  # two seconds to import, for this model alone

        body = resnet18(num_classes=classes)
        body.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        body.maxpool = nn.Identity()
        head, body.fc = body.fc, nn.Identity()
        return Network(body, head)
