"""DRN-D-22 (Yu et al., 2017): a dilated residual network for segmentation, an eighth of the images' resolution, scaled up by fixed bilinear weights."""

from collections import OrderedDict
from pathlib import Path
from typing import ClassVar, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from codline.core.errors import DataError
from codline.models.base import ModelSpec, Network

STRIDE = 8
RESIDUAL = (
    (64, 2, 1),
    (128, 2, 1),
    (256, 1, 2),
    (512, 1, 4),
)  # channels, stride, dilation of layers 3 to 6, two blocks each


class DrnD22(ModelSpec):
    """The body's names are those of the original's ImageNet weights, which fit once they are a safetensors file."""

    name: Literal["drn_d_22"] = "drn_d_22"
    weights: str | None = None  # a safetensors file for the body
    task: ClassVar[Literal["classification", "segmentation"]] = "segmentation"
    stride: ClassVar[int] = STRIDE

    def build(self, classes: int, shape: tuple[int, ...]) -> Network:
        layers: list[nn.Module] = [plain(shape[0], 16, kernel=7), plain(16, 16), plain(16, 32, stride=2)]
        inputs = 32
        for outputs, stride, dilation in RESIDUAL:
            layers.append(nn.Sequential(Block(inputs, outputs, stride, dilation), Block(outputs, outputs, 1, dilation)))
            inputs = outputs
        layers += [plain(inputs, inputs, dilation=2), plain(inputs, inputs)]
        body = nn.Sequential(OrderedDict((f"layer{i}", layer) for i, layer in enumerate(layers)))
        head = nn.Sequential(nn.Conv2d(inputs, classes, 1), Enlarged(classes, shape[1:]))
        for module in (*body.modules(), *head.modules()):
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return Network(body, head, stages=tuple(f"layer{i}" for i in range(1, len(layers))))

    def start(self, network: Network) -> None:
        if self.weights is not None:
            fill(network.body, Path(self.weights))


def plain(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=dilation * (kernel // 2), dilation=dilation, bias=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Block(nn.Module):
    """torchvision's BasicBlock knows no dilation."""

    def __init__(self, inputs: int, outputs: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        turned = inputs != outputs or stride != 1
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if turned
            else None
        )

    def forward(self, images: Tensor) -> Tensor:
        inner: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images)))))
        outer: Tensor = self.relu(inner + (images if self.downsample is None else self.downsample(images)))
        return outer


class Enlarged(nn.Module):
    """Bilinear, as a transposed convolution: its backward pass is exact on a GPU, which that of `interpolate` is not.

    The weights are a buffer: no optimizer moves them, no decay shrinks them, no file keeps them.
    """

    weight: Tensor

    def __init__(self, channels: int, size: tuple[int, ...]) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        ramp = 1 - (torch.arange(2 * STRIDE) + 0.5 - STRIDE).abs() / STRIDE
        self.register_buffer("weight", (ramp[:, None] * ramp).expand(channels, 1, -1, -1).clone(), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        grown = functional.conv_transpose2d(
            logits, self.weight, stride=STRIDE, padding=STRIDE // 2, groups=self.channels
        )
        height, width = (
            own if side == -(-own // STRIDE) else STRIDE * side
            for own, side in zip(self.size, logits.shape[2:], strict=True)
        )
        return grown[..., :height, :width]  # the dataset's images may end within the last step of the stride


def fill(body: nn.Module, path: Path) -> None:
    """Weights by name. A classifier in the file is left out; a counter of batches may be missing, as in files of old."""
    try:
        found = {key.removeprefix("body."): value for key, value in load_file(path).items()}
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; prepare.model.weights names it") from error
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path}: not a safetensors file ({' '.join(str(error).split())}); prepare.model.weights names it"
        ) from error
    own = {
        key: value
        for key, value in body.state_dict().items()
        if key in found or not key.endswith("num_batches_tracked")
    }
    for key, value in own.items():
        if key not in found or found[key].shape != value.shape:
            there = f"of shape {tuple(found[key].shape)}" if key in found else "missing"
            raise DataError(
                f"{path}: not the weights of a DRN-D-22 for these images: {key} is {there}, expected {tuple(value.shape)}"
            )
    body.load_state_dict({key: found[key] for key in own}, strict=False)
