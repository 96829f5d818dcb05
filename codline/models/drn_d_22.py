"""DRN-D-22 (Yu et al., 2017): dilated residual network for segmentation, with fixed bilinear upsampling by 8."""

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from safetensors import SafetensorError

from codline.core.errors import DataError
from codline.core.files import user_path
from codline.models.base import ModelSpec

if TYPE_CHECKING:
    from torch import nn

    from codline.models.networks.network import Network

STRIDE = 8
# Channels, stride and dilation of layers 3 to 6, which have two blocks each.
RESIDUAL_LAYERS = ((64, 2, 1), (128, 2, 1), (256, 1, 2), (512, 1, 4))


class DrnD22(ModelSpec):
    """Parameters of the body have their original names, so that the published ImageNet weights fit."""

    name: Literal["drn_d_22"] = "drn_d_22"
    weights: str | None = None  # safetensors file for the body
    task: ClassVar[Literal["classification", "segmentation"]] = "segmentation"
    stride: ClassVar[int] = STRIDE

    def build(self, classes: int, shape: tuple[int, ...]) -> "Network":
        from torch import nn

        from codline.models.networks.layers import BilinearUpsample, DilatedBlock, conv_bn_relu
        from codline.models.networks.network import Network

        layers = [
            nn.Sequential(*conv_bn_relu(shape[0], 16, kernel=7)),
            nn.Sequential(*conv_bn_relu(16, 16)),
            nn.Sequential(*conv_bn_relu(16, 32, stride=2)),
        ]
        inputs = 32
        for outputs, stride, dilation in RESIDUAL_LAYERS:
            first = DilatedBlock(inputs, outputs, stride, dilation)
            layers.append(nn.Sequential(first, DilatedBlock(outputs, outputs, 1, dilation)))
            inputs = outputs
        layers += [nn.Sequential(*conv_bn_relu(inputs, inputs, dilation=dilation)) for dilation in (2, 1)]
        body = nn.Sequential(OrderedDict((f"layer{i}", layer) for i, layer in enumerate(layers)))
        head = nn.Sequential(nn.Conv2d(inputs, classes, 1), BilinearUpsample(classes, shape[1:], STRIDE))
        for module in (*body.modules(), *head.modules()):
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return Network(body, head, stages=tuple(f"layer{i}" for i in range(1, len(layers))))

    def load_pretrained(self, network: "Network") -> None:
        if self.weights is not None:
            load_body(network.body, user_path(self.weights))


def load_body(body: "nn.Module", path: Path) -> None:
    """Loads weights by name. A classifier in the file is ignored; batch counters may be missing, as in old files."""
    from safetensors.torch import load_file

    try:
        weights = {key.removeprefix("body."): value for key, value in load_file(path).items()}
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; prepare.model.weights names it") from error
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a safetensors file ({reason}); prepare.model.weights names it") from error
    state = body.state_dict()
    keys = [key for key in state if key in weights or not key.endswith("num_batches_tracked")]
    for key in keys:
        if key not in weights or weights[key].shape != state[key].shape:
            found = f"of shape {tuple(weights[key].shape)}" if key in weights else "missing"
            raise DataError(
                f"{path}: not the weights of a DRN-D-22 for these images: "
                f"{key} is {found}, expected {tuple(state[key].shape)}"
            )
    body.load_state_dict({key: weights[key] for key in keys}, strict=False)
