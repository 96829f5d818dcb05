"""Properties of single models, at their original size."""

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
from codline.models.drn_d_22 import DrnD22
from codline.models.networks.layers import BilinearUpsample
from codline.models.resnet18 import ResNet18
from codline.models.resnet18_224 import ResNet18At224
from codline.models.small_cnn import SmallCnn
from codline.models.small_unet import SmallUnet


def parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_resnet18_has_the_stem_for_small_images_and_no_max_pooling() -> None:
    network = ResNet18().build(10, (3, 32, 32))
    stem = network.body.conv1
    assert isinstance(stem, nn.Conv2d)
    assert (stem.kernel_size, stem.stride, stem.padding, stem.bias) == ((3, 3), (1, 1), (1, 1), None)
    assert not [module for module in network.modules() if isinstance(module, nn.MaxPool2d)]


def test_resnet18_has_the_parameter_count_of_the_usual_cifar_variant() -> None:
    assert parameter_count(ResNet18().build(10, (3, 32, 32))) == 11_173_962


def test_resnet18_equals_torchvisions_except_for_the_stem() -> None:
    ours, theirs = ResNet18().build(10, (3, 32, 32)).eval(), torchvision.models.resnet18(num_classes=10).eval()
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    theirs.load_state_dict({f"fc.{k}": v for k, v in ours.head.state_dict().items()} | ours.body.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(images), theirs(images))


def test_resnet18_with_a_quarter_of_the_width_has_about_a_sixteenth_of_the_parameters() -> None:
    full, quarter = (parameter_count(ResNet18(width=width).build(10, (3, 32, 32))) for width in (64, 16))
    assert 15 < full / quarter < 17


def test_small_cnn_has_the_parameter_count_of_its_width() -> None:
    w, classes = 4, 10
    convolutions = 9 * (w + 2 * w * w + 4 * w * w + 8 * w * w)
    norms = 2 * (w + 2 * w + 2 * w + 4 * w)
    assert parameter_count(SmallCnn(width=w).build(classes, (1, 8, 8))) == convolutions + norms + (16 * w + 1) * classes


@pytest.fixture
def imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Weights in the file to which torchvision downloads them."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    torch.manual_seed(7)
    state = torchvision.models.resnet18().state_dict()
    (tmp_path / "checkpoints").mkdir()
    torch.save(state, tmp_path / "checkpoints" / "resnet18-f37072fd.pth")
    return dict(state)


def test_resnet18_224_equals_torchvisions_and_takes_any_number_of_channels() -> None:
    ours, theirs = ResNet18At224().build(10, (3, 64, 64)).eval(), torchvision.models.resnet18(num_classes=10).eval()
    theirs.load_state_dict({f"fc.{k}": v for k, v in ours.head.state_dict().items()} | ours.body.state_dict())
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(images), theirs(images))
    assert parameter_count(ours) - parameter_count(ResNet18At224().build(10, (1, 64, 64))) == 2 * 64 * 7 * 7


def test_resnet18_224_loads_imagenet_weights_except_for_the_head(imagenet: dict[str, torch.Tensor]) -> None:
    pretrained, random = (
        spec.initial_network(10, (3, 224, 224), seed=0) for spec in (ResNet18At224(weights="imagenet"), ResNet18At224())
    )
    assert all(torch.equal(value, imagenet[key]) for key, value in pretrained.body.state_dict().items())
    assert torch.equal(pretrained.head.weight, random.head.weight)


def test_resnet18_224_can_leave_out_imagenet_weights_of_the_last_layer(imagenet: dict[str, torch.Tensor]) -> None:
    pretrained, random = (
        spec.initial_network(10, (3, 224, 224), seed=0).body.state_dict()
        for spec in (ResNet18At224(weights="imagenet", layers=3), ResNet18At224())
    )
    for key, value in pretrained.items():
        assert torch.equal(value, random[key] if key.startswith("layer4.") else imagenet[key])


def test_resnet18_224_gives_a_gray_image_the_features_of_the_same_image_in_rgb(
    imagenet: dict[str, torch.Tensor],
) -> None:
    spec = ResNet18At224(weights="imagenet")
    rgb, gray = (spec.initial_network(10, (channels, 64, 64), seed=0).eval() for channels in (3, 1))
    images = torch.randn(2, 1, 64, 64)
    assert torch.allclose(gray.body(images), rgb.body(images.expand(-1, 3, -1, -1)), atol=1e-4)


def test_resnet18_224_without_network_names_the_file_to_download_and_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(DataError) as refused:
        ResNet18At224(weights="imagenet").initial_network(10, (3, 64, 64), seed=0)
    path, url = tmp_path / "checkpoints" / "resnet18-f37072fd.pth", ResNet18_Weights.IMAGENET1K_V1.url
    sentence = f"{path}: no weights of ImageNet (<urlopen error no route to host>); get {url} and put it there"
    assert str(refused.value) == sentence


def test_resnet18_224_names_a_broken_weights_file(imagenet: dict[str, torch.Tensor], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"resnet18-f37072fd\.pth: no weights of ImageNet \("):
        ResNet18At224(weights="imagenet").initial_network(10, (3, 64, 64), seed=0)


def test_load_network_does_not_need_the_pretrained_weights(imagenet: dict[str, torch.Tensor], tmp_path: Path) -> None:
    spec = ResNet18At224(weights="imagenet")
    network = spec.initial_network(4, (3, 32, 32), seed=0)
    model_file.save_network(
        tmp_path / "model", network, model_file.ModelCard(spec.model_dump(), 4, (3, 32, 32), "c1", 8)
    )
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").unlink()
    loaded, _ = model_file.load_network(tmp_path / "model", classes=4, shape=(3, 32, 32))
    assert torch.equal(loaded.body.conv1.weight, network.body.conv1.weight)


def test_drn_d_22_has_the_parameter_counts_of_the_original() -> None:
    network = DrnD22().build(19, (3, 64, 64))
    counts = [parameter_count(layer) for layer in network.body]
    assert counts == [2_384, 2_336, 4_672, 131_712, 525_568, 2_099_712, 8_393_728, 2_360_320, 2_360_320]
    assert parameter_count(network.body) == 15_880_752
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == parameter_count(network) == 15_890_499


def test_drn_d_22_reduces_the_resolution_to_an_eighth_and_then_dilates() -> None:
    network = DrnD22().build(19, (3, 64, 64)).eval()
    stages, _, _ = network.forward_with_stages(torch.randn(1, 3, 64, 64))
    assert [output.shape[2] for output in stages] == [64, 32, 16, 8, 8, 8, 8, 8]
    convolutions = [[module for module in layer.modules() if isinstance(module, nn.Conv2d)] for layer in network.body]
    dilations = [{conv.dilation[0] for conv in layer if conv.kernel_size != (1, 1)} for layer in convolutions]
    assert dilations == [{1}, {1}, {1}, {1}, {1}, {2}, {4}, {2}, {1}]


def test_drn_d_22_takes_the_datasets_own_size_and_multiples_of_its_stride() -> None:
    network = DrnD22().build(3, (3, 36, 48)).eval()
    for height, width in [(36, 48), (16, 16), (64, 48)]:
        assert network(torch.zeros(1, 3, height, width)).shape == (1, 3, height, width)


def test_bilinear_upsample_equals_interpolate_and_has_no_parameters() -> None:
    upsample = BilinearUpsample(2, (80, 48), stride=8)
    coarse = torch.randn(1, 2, 10, 6)
    expected = functional.interpolate(coarse, scale_factor=8, mode="bilinear", align_corners=False)
    inner = (..., slice(8, -8), slice(8, -8))  # at the border a transposed convolution decays to zero
    assert torch.allclose(upsample(coarse)[inner], expected[inner], atol=1e-6)
    assert not list(upsample.parameters())
    assert not upsample.state_dict()


def test_drn_d_22_loads_its_body_from_a_file(tmp_path: Path) -> None:
    other = DrnD22().seeded_network(7, (3, 64, 64), seed=1)
    weights = {key: value.contiguous() for key, value in other.body.state_dict().items() if "num_batches" not in key}
    save_file(weights | {"fc.weight": torch.zeros(1000, 512, 1, 1)}, tmp_path / "drn.safetensors")
    network = DrnD22(weights=str(tmp_path / "drn.safetensors")).initial_network(19, (3, 64, 64), seed=0)
    assert all(torch.equal(value, other.body.state_dict()[key]) for key, value in network.body.state_dict().items())
    assert torch.equal(network.head[0].weight, DrnD22().seeded_network(19, (3, 64, 64), seed=0).head[0].weight)


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
def test_drn_d_22_refuses_weights_that_do_not_fit(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]] | bytes | None, sentence: str
) -> None:
    path = tmp_path / "drn.safetensors"
    if isinstance(tensors, bytes):
        path.write_bytes(tensors)
    elif tensors is not None:
        save_file({key: torch.zeros(shape) for key, shape in tensors.items()}, path)
    with pytest.raises(DataError, match=f"{path}: {sentence}$"):
        DrnD22(weights=str(path)).initial_network(19, (3, 64, 64), seed=0)


def test_small_unet_has_sixteen_times_the_parameters_at_four_times_the_width() -> None:
    narrow, wide = (SmallUnet(width=width).build(5, (3, 16, 16)) for width in (4, 16))
    assert 14 < parameter_count(wide) / parameter_count(narrow) < 17


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 64), (33, 47)])
def test_small_unet_takes_images_of_any_size(height: int, width: int) -> None:
    network = SmallUnet(width=2).build(4, (3, height, width)).eval()
    assert network(torch.zeros(1, 3, height, width)).shape == (1, 4, height, width)


def test_small_unet_takes_less_than_a_billion_operations_per_image_and_step() -> None:
    """At most 0.1 s on one core. Operations are counted because measured times depend on the machine's load."""
    network = SmallUnet().seeded_network(8, (3, 64, 64), seed=0)
    with FlopCounterMode(display=False) as counter:
        logits = network(torch.zeros(1, 3, 64, 64))
        functional.cross_entropy(logits, torch.zeros(1, 64, 64, dtype=torch.int64)).backward()
    assert 1e8 < counter.get_total_flops() < 1e9
