"""Contract of models: shapes of logits, weights that follow from the seed alone, capacity to overfit eight images."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image
from torch import nn
from torch.nn import functional

from codline.cli.plugins import members
from codline.learning import model_file, task_loss
from codline.models import drn_d_22
from codline.models.base import ModelSpec
from codline.models.networks.network import Network, SkipInitialization
from tests.families import variant_id, variants

CLASSES, SHAPE = 5, (1, 8, 8)


def narrow(spec: Any) -> Any:
    """The contract holds for any width; tests/models checks the original ones."""
    return spec.model_copy(update={"width": 8}) if hasattr(spec, "width") else spec


each_model = pytest.mark.parametrize("spec", [narrow(spec) for spec in variants("models")], ids=variant_id)


@pytest.fixture(autouse=True)
def narrow_drn_d_22(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [(channels // 8, stride, dilation) for channels, stride, dilation in drn_d_22.RESIDUAL_LAYERS]
    monkeypatch.setattr(drn_d_22, "RESIDUAL_LAYERS", layers)


def random_images(count: int = 8) -> torch.Tensor:
    return torch.randn((count, *SHAPE), generator=torch.Generator().manual_seed(0))


def make_targets(logits: torch.Tensor) -> torch.Tensor:
    """A class per image; for segmentation, the same one in all its pixels."""
    labels = torch.arange(8) % CLASSES
    return labels if logits.ndim == 2 else labels[:, None, None].expand(-1, *logits.shape[2:])


def compute_loss(network: Network) -> torch.Tensor:
    logits = network(random_images())
    return functional.cross_entropy(logits, make_targets(logits))


def have_equal_weights(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("kind", members("models"))
def test_model_is_named_like_its_module(kind: type[ModelSpec]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_model
@pytest.mark.parametrize("shape", [SHAPE, (3, 32, 32), (4, 29, 19)], ids=str)
def test_network_returns_logits_per_image_or_for_segmentation_per_pixel(
    spec: ModelSpec, shape: tuple[int, ...]
) -> None:
    network = spec.initial_network(CLASSES, shape, seed=0).eval()
    batch = torch.randn((2, *shape))
    features = network.body(batch)
    assert network(batch).shape == ((2, CLASSES, *shape[1:]) if spec.task == "segmentation" else (2, CLASSES))
    assert features.ndim == (4 if spec.task == "segmentation" else 2)
    assert torch.equal(network(batch), network.head(features))


@each_model
def test_forward_with_stages_returns_the_outputs_of_stages_with_features_and_logits(spec: ModelSpec) -> None:
    network = spec.initial_network(CLASSES, (3, 32, 32), seed=0).eval()
    batch = torch.randn((2, 3, 32, 32))
    stages, features, logits = network.forward_with_stages(batch)
    assert len(stages) == len(network.stages) >= 3
    assert all(output.ndim == 4 and len(output) == 2 for output in stages)
    heights = [output.shape[2] for output in stages]
    coarsest = heights.index(min(heights))
    assert heights[:coarsest] == sorted(heights[:coarsest], reverse=True)
    assert torch.equal(features, network.body(batch))
    assert torch.equal(logits, network(batch))


@each_model
def test_forward_with_stages_passes_gradients_to_the_body_and_removes_its_hooks(spec: ModelSpec) -> None:
    network = spec.initial_network(CLASSES, SHAPE, seed=0)
    stages, _, _ = network.forward_with_stages(random_images())
    sum(output.square().mean() for output in stages).backward()
    assert all(parameter.grad is None for parameter in network.head.parameters())
    assert next(network.body.parameters()).grad is not None
    assert not any(module._forward_hooks for module in network.modules())


@each_model
def test_gradients_are_bitwise_reproducible_with_deterministic_algorithms(spec: ModelSpec) -> None:
    assert torch.get_deterministic_debug_mode() == 2
    first, second = (spec.initial_network(CLASSES, SHAPE, seed=0) for _ in range(2))
    for network in (first, second):
        compute_loss(network).backward()
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(ours.grad, theirs.grad) for ours, theirs in pairs)


# Operations that have no deterministic gradient on CUDA (see torch.use_deterministic_algorithms) and that a network
# for images might use.
NONDETERMINISTIC = re.compile(
    "Adaptive(Avg|Max)Pool|(Avg|Max)Pool3D|FractionalMaxPool|MaxUnpool|Upsample|(Reflection|Replication)Pad|"
    "GridSampler|NllLoss2D|Median|Cumsum|Put"
)


@each_model
def test_gradients_use_no_operation_that_is_nondeterministic_on_cuda(spec: ModelSpec) -> None:
    """AdaptiveAvgPool2d(1) is allowed: its gradient is MeanBackward."""
    logits = spec.initial_network(CLASSES, SHAPE, seed=0)(random_images())
    visited, pending = set(), [task_loss.mean_loss(logits, make_targets(logits)).grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in visited:
            visited.add(node)
            pending += [function for function, _ in node.next_functions]
    names = {node.name() for node in visited}
    assert any("Convolution" in name for name in names)
    assert not [name for name in names if NONDETERMINISTIC.search(name)]


@each_model
def test_initial_network_follows_from_the_seed_alone(spec: ModelSpec) -> None:
    first, second, other = (spec.initial_network(CLASSES, SHAPE, seed) for seed in (1, 1, 2))
    assert have_equal_weights(first, second)
    assert not have_equal_weights(first, other)


@each_model
def test_initial_network_leaves_the_global_random_state_unchanged(spec: ModelSpec) -> None:
    before = torch.get_rng_state()
    spec.initial_network(CLASSES, SHAPE, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def photograph_tiles(side: int) -> torch.Tensor:
    """(N, 3, side, side): tiles of two photographs, each channel with mean 0 and deviation 1."""
    pixels = np.stack([load_sample_image(name) for name in ("china.jpg", "flower.jpg")]).astype(np.float32)
    rows, columns = pixels.shape[1] // side, pixels.shape[2] // side
    tiles = pixels[:, : rows * side, : columns * side].reshape(2, rows, side, columns, side, 3).swapaxes(2, 3)
    standardized = (tiles - tiles.mean((0, 1, 2, 3, 4))) / tiles.std((0, 1, 2, 3, 4))
    return torch.from_numpy(standardized).reshape(-1, side, side, 3).permute(0, 3, 1, 2)


# Mean probability of the most probable class, times the number of classes: 1 if all classes are equally probable.
NEARLY_UNIFORM = 1.5
# Two models are initialized as in the original, which makes them favor classes. COD's first-cycle rules `smallest` and
# `independent` would then select images of these classes; `uniform` does not.
FAVORS_CLASSES = {"resnet18_224": 2.80, "drn_d_22": 3.09}


@each_model
def test_untrained_outputs_are_nearly_uniform_except_where_the_original_initialization_prevents_it(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # drn_d_22 at its original size
    classes, images = 10, photograph_tiles(192) if spec.name == "resnet18_224" else photograph_tiles(32)[::8]
    networks = [spec.initial_network(classes, tuple(images.shape[1:]), seed).eval() for seed in range(3)]
    with torch.inference_mode():
        largest = [classes * float(network(images).softmax(1).amax(1).mean()) for network in networks]
    if spec.name in FAVORS_CLASSES:
        assert np.mean(largest) == pytest.approx(FAVORS_CLASSES[spec.name], abs=0.05)
    else:
        assert max(largest) < NEARLY_UNIFORM


@each_model
def test_network_can_overfit_eight_images(spec: ModelSpec) -> None:
    network = spec.initial_network(CLASSES, SHAPE, seed=0).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(60):
        loss = compute_loss(network)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.05:
            break
    logits = network(random_images())
    assert (logits.argmax(1) == make_targets(logits)).all()
    assert loss < 0.1


@each_model
def test_dropout_is_a_layer_before_the_head_that_acts_in_training_alone(spec: ModelSpec) -> None:
    plain, network = (
        spec.model_copy(update={"dropout": rate}).initial_network(CLASSES, SHAPE, seed=3) for rate in (0, 0.5)
    )
    images, features = random_images(), torch.ones_like(plain.eval().body(random_images()))
    assert torch.equal(network.eval()(images), plain(images))
    torch.manual_seed(0)
    assert not torch.equal(network.train()(images), network(images))
    dropped = network.head[0](features).reshape(
        *features.shape[:2], -1
    )  # of dense features, whole channels are dropped
    assert set(dropped.unique().tolist()) == {0, 2}
    assert (dropped == dropped[..., :1]).all()


@each_model
def test_load_network_restores_a_saved_network(spec: ModelSpec, tmp_path: Path) -> None:
    network = spec.initial_network(CLASSES, SHAPE, seed=3).train()
    network(random_images())  # changes the batch-norm statistics
    card = model_file.ModelCard(spec.model_dump(), CLASSES, SHAPE, "c1", 8)
    for name in ("first", "second"):
        model_file.save_network(tmp_path / name, network, card)
    loaded, loaded_card = model_file.load_network(tmp_path / "first", classes=CLASSES, shape=SHAPE)
    assert have_equal_weights(loaded, network)
    assert loaded_card == card
    assert loaded_card.spec == spec
    assert torch.equal(loaded.eval()(random_images()), network.eval()(random_images()))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@each_model
def test_uninitialized_network_draws_no_random_numbers(spec: ModelSpec) -> None:
    with torch.random.fork_rng(), SkipInitialization():
        before = torch.get_rng_state()
        network = spec.build(CLASSES, SHAPE)
        assert torch.equal(torch.get_rng_state(), before)
    assert {name: value.shape for name, value in network.state_dict().items()} == {
        name: value.shape for name, value in spec.uninitialized_network(CLASSES, SHAPE).state_dict().items()
    }


@each_model
def test_network_in_eval_mode_treats_every_image_of_a_batch_independently(spec: ModelSpec) -> None:
    network = spec.initial_network(CLASSES, SHAPE, seed=0).eval()
    with torch.inference_mode():
        assert torch.allclose(network(random_images())[2:5], network(random_images()[2:5]), atol=1e-5)
