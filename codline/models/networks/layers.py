"""Layers that models are built of."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_bn_relu(
    inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, dilation: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
    padding = dilation * (kernel // 2)
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


def projection_shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The 1x1 convolution around a residual block that changes the shape; None for an identity shortcut."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def residual_layer(inputs: int, outputs: int, stride: int) -> nn.Module:
    from torchvision.models.resnet import BasicBlock  # takes two seconds to import

    shortcut = projection_shortcut(inputs, outputs, stride)
    return nn.Sequential(BasicBlock(inputs, outputs, stride, shortcut), BasicBlock(outputs, outputs))


class QuadrantAveragePool(nn.Module):
    """Bitwise equal to nn.AdaptiveAvgPool2d(2), whose gradient has no deterministic CUDA kernel."""

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        return functional.avg_pool2d(images, (-(-height // 2), -(-width // 2)), (height // 2, width // 2))


class DilatedBlock(nn.Module):
    """torchvision's BasicBlock with dilation, which the original does not support."""

    def __init__(self, inputs: int, outputs: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = projection_shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        residual: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(inputs)))))
        outputs: Tensor = self.relu(residual + (inputs if self.downsample is None else self.downsample(inputs)))
        return outputs


class BilinearUpsample(nn.Module):
    """Bilinear upsampling as a transposed convolution: its gradient is deterministic on CUDA, unlike `interpolate`'s.

    The weights are a non-persistent buffer: not trained, not decayed, not saved.
    """

    weight: Tensor

    def __init__(self, channels: int, size: tuple[int, ...], stride: int) -> None:
        super().__init__()
        self.channels, self.size, self.stride = channels, size, stride
        ramp = 1 - (torch.arange(2 * stride) + 0.5 - stride).abs() / stride
        self.register_buffer("weight", (ramp[:, None] * ramp).expand(channels, 1, -1, -1).clone(), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        upsampled = functional.conv_transpose2d(
            logits, self.weight, stride=self.stride, padding=self.stride // 2, groups=self.channels
        )
        # Images of the dataset's own size need not be multiples of the stride: cut off what exceeds them.
        height, width = (
            own if side == -(-own // self.stride) else self.stride * side
            for own, side in zip(self.size, logits.shape[2:], strict=True)
        )
        return upsampled[..., :height, :width]
