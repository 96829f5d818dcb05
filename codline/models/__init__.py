"""Model plug-ins. To add one: write its module and add its class to this union."""

from typing import Annotated

from pydantic import Field

from codline.models.drn_d_22 import DrnD22
from codline.models.resnet18 import ResNet18
from codline.models.resnet18_224 import ResNet18At224
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet

AnyModel = Annotated[SmallCnn | ResNet18 | ResNet18At224 | SmallUnet | DrnD22, Field(discriminator="name")]
