"""The models. To add one: write its file, and its class into this union."""

from typing import Annotated

from pydantic import Field

from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn

AnyModel = Annotated[SmallCnn | ResNet18, Field(discriminator="name")]
