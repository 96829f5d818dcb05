"""What is particular to one model."""

import torch
import torchvision
from torch import nn

from codline.models.resnet18 import ResNet18
from codline.models.small_cnn import SmallCnn


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_resnet18_has_the_stem_for_small_images_and_no_max_pooling() -> None:
    network = ResNet18().build(10, (3, 32, 32))
    stem = network.body.conv1
    assert isinstance(stem, nn.Conv2d)
    assert (stem.kernel_size, stem.stride, stem.padding, stem.bias) == ((3, 3), (1, 1), (1, 1), None)
    assert not [module for module in network.modules() if isinstance(module, nn.MaxPool2d)]


def test_resnet18_has_as_many_parameters_as_the_one_that_is_known_for_cifar() -> None:
    assert size(ResNet18().build(10, (3, 32, 32))) == 11_173_962


def test_resnet18_is_torchvisions_but_for_the_stem() -> None:
    ours, theirs = ResNet18().build(10, (3, 32, 32)).eval(), torchvision.models.resnet18(num_classes=10).eval()
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    theirs.load_state_dict({f"fc.{k}": v for k, v in ours.head.state_dict().items()} | ours.body.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(images), theirs(images))


def test_a_resnet18_of_a_quarter_of_the_width_has_about_a_sixteenth_of_the_parameters() -> None:
    assert 15 < size(ResNet18().build(10, (3, 32, 32))) / size(ResNet18(width=16).build(10, (3, 32, 32))) < 17


def test_the_width_of_small_cnn_is_a_parameter() -> None:
    w, classes = 4, 10
    convolutions = 9 * (w + 2 * w * w + 4 * w * w + 8 * w * w)
    norms = 2 * (w + 2 * w + 2 * w + 4 * w)
    assert size(SmallCnn(width=w).build(classes, (1, 8, 8))) == convolutions + norms + (16 * w + 1) * classes
