"""U-Net (Ronneberger et al., 2015) with three levels, for segmentation on a CPU. Images may have any size."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from codline.models.base import ModelSpec

if TYPE_CHECKING:
    from codline.models.networks.network import Network


class SmallUnet(ModelSpec):
    name: Literal["small_unet"] = "small_unet"
    width: PositiveInt = 16  # channels of the first level, doubled at each of the next two
    task: ClassVar[Literal["classification", "segmentation"]] = "segmentation"

    def build(self, classes: int, shape: tuple[int, ...]) -> "Network":
        from torch import nn

        from codline.models.networks.network import Network
        from codline.models.networks.unet import UnetBody

        body, head = UnetBody(shape[0], self.width), nn.Conv2d(self.width, classes, 1)
        return Network(body, head, stages=("down1", "down2", "down3", "up2", "up1"))
