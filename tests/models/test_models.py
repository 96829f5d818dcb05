"""What is particular to one model."""

from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import ResNet18_Weights

from codline.core.errors import DataError
from codline.learning import model_file
from codline.models.drn_d_22 import DrnD22, Enlarged
from codline.models.resnet18 import ResNet18
from codline.models.resnet18_224 import ResNet18At224
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet


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


@pytest.fixture
def imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """A file where torchvision keeps the weights that it has downloaded."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    torch.manual_seed(7)
    state = torchvision.models.resnet18().state_dict()
    (tmp_path / "checkpoints").mkdir()
    torch.save(state, tmp_path / "checkpoints" / "resnet18-f37072fd.pth")
    return dict(state)


def test_resnet18_224_is_torchvisions_with_any_number_of_channels() -> None:
    ours, theirs = ResNet18At224().build(10, (3, 64, 64)).eval(), torchvision.models.resnet18(num_classes=10).eval()
    theirs.load_state_dict({f"fc.{k}": v for k, v in ours.head.state_dict().items()} | ours.body.state_dict())
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(images), theirs(images))
    assert size(ours) - size(ResNet18At224().build(10, (1, 64, 64))) == 2 * 64 * 7 * 7


def test_resnet18_224_starts_from_imagenet_but_for_the_head(imagenet: dict[str, torch.Tensor]) -> None:
    pretrained, drawn = (
        spec.initial(10, (3, 224, 224), seed=0) for spec in (ResNet18At224(weights="imagenet"), ResNet18At224())
    )
    assert all(torch.equal(value, imagenet[key]) for key, value in pretrained.body.state_dict().items())
    assert torch.equal(pretrained.head.weight, drawn.head.weight)


def test_the_last_layer_of_resnet18_224_need_not_start_from_imagenet(imagenet: dict[str, torch.Tensor]) -> None:
    pretrained, drawn = (
        spec.initial(10, (3, 224, 224), seed=0).body.state_dict()
        for spec in (ResNet18At224(weights="imagenet", layers=3), ResNet18At224())
    )
    for key, value in pretrained.items():
        assert torch.equal(value, drawn[key] if key.startswith("layer4.") else imagenet[key])


def test_a_grey_image_looks_to_resnet18_224_like_the_same_in_colour(imagenet: dict[str, torch.Tensor]) -> None:
    colour, grey = (
        ResNet18At224(weights="imagenet").initial(10, (channels, 64, 64), seed=0).eval() for channels in (3, 1)
    )
    images = torch.randn(2, 1, 64, 64)
    assert torch.allclose(grey.body(images), colour.body(images.expand(-1, 3, -1, -1)), atol=1e-4)


def test_without_network_resnet18_224_says_which_file_goes_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(DataError) as refused:
        ResNet18At224(weights="imagenet").initial(10, (3, 64, 64), seed=0)
    place, url = tmp_path / "checkpoints" / "resnet18-f37072fd.pth", ResNet18_Weights.IMAGENET1K_V1.url
    assert (
        str(refused.value)
        == f"{place}: no weights of ImageNet (<urlopen error no route to host>); get {url} and put it there"
    )


def test_a_broken_file_of_imagenet_s_weights_is_named(imagenet: dict[str, torch.Tensor], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"resnet18-f37072fd\.pth: no weights of ImageNet \("):
        ResNet18At224(weights="imagenet").initial(10, (3, 64, 64), seed=0)


def test_a_model_file_is_read_without_the_weights_that_the_model_once_started_from(
    imagenet: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    spec = ResNet18At224(weights="imagenet")
    network = spec.initial(4, (3, 32, 32), seed=0)
    model_file.save_network(tmp_path / "model", network, model_file.Card(spec.model_dump(), 4, (3, 32, 32), "c1", 8))
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").unlink()
    loaded, _ = model_file.load_network(tmp_path / "model", classes=4, shape=(3, 32, 32))
    assert torch.equal(loaded.body.conv1.weight, network.body.conv1.weight)


def test_drn_d_22_has_the_parameters_of_the_original_in_every_layer() -> None:
    network = DrnD22().build(19, (3, 64, 64))
    assert [size(layer) for layer in network.body] == [
        2_384,
        2_336,
        4_672,
        131_712,
        525_568,
        2_099_712,
        8_393_728,
        2_360_320,
        2_360_320,
    ]
    assert size(network.body) == 15_880_752
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == size(network) == 15_890_499


def test_drn_d_22_sees_an_eighth_of_the_resolution_and_dilates_instead_of_shrinking_further() -> None:
    network = DrnD22().build(19, (3, 64, 64)).eval()
    sides = [output.shape[2] for output in network.staged(torch.randn(1, 3, 64, 64))[0]]
    assert sides == [64, 32, 16, 8, 8, 8, 8, 8]
    dilations = [
        {
            module.dilation[0]
            for module in layer.modules()
            if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1)
        }
        for layer in network.body
    ]
    assert dilations == [{1}, {1}, {1}, {1}, {1}, {2}, {4}, {2}, {1}]


def test_drn_d_22_answers_at_the_images_own_size_and_on_crops_of_a_multiple_of_its_stride() -> None:
    network = DrnD22().build(3, (3, 180, 240)).eval()
    for height, width in [(180, 240), (64, 64), (256, 240)]:
        assert network(torch.zeros(1, 3, height, width)).shape == (1, 3, height, width)


def test_the_enlargement_of_drn_d_22_is_bilinear_and_out_of_reach_of_training() -> None:
    enlarged = Enlarged(2, (80, 48))
    coarse = torch.randn(1, 2, 10, 6)
    expected = functional.interpolate(coarse, scale_factor=8, mode="bilinear", align_corners=False)
    inner = (..., slice(8, -8), slice(8, -8))  # at the border a transposed convolution fades out
    assert torch.allclose(enlarged(coarse)[inner], expected[inner], atol=1e-6)
    assert not list(enlarged.parameters())
    assert not enlarged.state_dict()


def test_the_body_of_drn_d_22_starts_from_a_file(tmp_path: Path) -> None:
    other = DrnD22().drawn(7, (3, 64, 64), seed=1)
    kept = {key: value.contiguous() for key, value in other.body.state_dict().items() if "num_batches" not in key}
    save_file(kept | {"fc.weight": torch.zeros(1000, 512, 1, 1)}, tmp_path / "drn.safetensors")
    network = DrnD22(weights=str(tmp_path / "drn.safetensors")).initial(19, (3, 64, 64), seed=0)
    assert all(torch.equal(value, other.body.state_dict()[key]) for key, value in network.body.state_dict().items())
    assert torch.equal(network.head[0].weight, DrnD22().drawn(19, (3, 64, 64), seed=0).head[0].weight)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (None, "not found; prepare.model.weights names it"),
        (b"nothing", "not a safetensors file (.*); prepare.model.weights names it"),
        ({}, r"not the weights of a DRN-D-22 for these images: layer0\.0\.weight is missing, expected \(16, 3, 7, 7\)"),
        (
            {"layer0.0.weight": (16, 1, 7, 7)},
            r"not the weights .*: layer0\.0\.weight is of shape \(16, 1, 7, 7\), expected \(16, 3, 7, 7\)",
        ),
    ],
)
def test_weights_that_do_not_fit_drn_d_22_are_refused(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]] | bytes | None, sentence: str
) -> None:
    path = tmp_path / "drn.safetensors"
    if isinstance(tensors, bytes):
        path.write_bytes(tensors)
    elif tensors is not None:
        save_file({key: torch.zeros(shape) for key, shape in tensors.items()}, path)
    with pytest.raises(DataError, match=f"{path}: {sentence}$"):
        DrnD22(weights=str(path)).initial(19, (3, 64, 64), seed=0)


def test_the_width_of_small_unet_is_a_parameter() -> None:
    narrow, wide = (SmallUnet(width=width).build(5, (3, 16, 16)) for width in (4, 16))
    assert 14 < size(wide) / size(narrow) < 17


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 64), (33, 47)])
def test_small_unet_takes_images_of_any_sides(height: int, width: int) -> None:
    assert SmallUnet(width=2).build(4, (3, height, width)).eval()(torch.zeros(1, 3, height, width)).shape == (
        1,
        4,
        height,
        width,
    )


def test_a_step_of_small_unet_is_under_a_billion_operations_an_image() -> None:
    """A tenth of a second or less on one core; counted, because clocks depend on what else runs."""
    network = SmallUnet().drawn(8, (3, 64, 64), seed=0)
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(
            network(torch.zeros(1, 3, 64, 64)), torch.zeros(1, 64, 64, dtype=torch.int64)
        ).backward()
    assert 1e8 < counter.get_total_flops() < 1e9
