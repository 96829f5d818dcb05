"""What every model promises: logits of the right shape, weights that follow from the seed alone, and the power to learn eight images by heart."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from codline.cli.plugins import members
from codline.learning import model_file, task_loss
from codline.models.base import ModelSpec, Network, Undrawn
from tests.families import spelled, variants

CLASSES, SHAPE = 5, (1, 8, 8)
each_model = pytest.mark.parametrize("spec", variants("models"), ids=spelled)


def images(count: int = 8) -> torch.Tensor:
    return torch.randn((count, *SHAPE), generator=torch.Generator().manual_seed(0))


def wanted(logits: torch.Tensor) -> torch.Tensor:
    """A class per image; of segmentation, the same one all over it."""
    labels = torch.arange(8) % CLASSES
    return labels if logits.ndim == 2 else labels[:, None, None].expand(-1, *logits.shape[2:])


def loss_of(network: Network) -> torch.Tensor:
    logits = network(images())
    return functional.cross_entropy(logits, wanted(logits))


def same(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("kind", members("models"))
def test_a_model_is_named_like_its_file(kind: type[ModelSpec]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_model
@pytest.mark.parametrize("shape", [SHAPE, (3, 32, 32), (4, 29, 19)], ids=str)
def test_logits_are_one_per_image_and_class_and_of_segmentation_per_pixel(
    spec: ModelSpec, shape: tuple[int, ...]
) -> None:
    network = spec.initial(CLASSES, shape, seed=0).eval()
    batch = torch.randn((2, *shape))
    features = network.body(batch)
    assert network(batch).shape == ((2, CLASSES, *shape[1:]) if spec.task == "segmentation" else (2, CLASSES))
    assert features.ndim == (4 if spec.task == "segmentation" else 2)
    assert torch.equal(network(batch), network.head(features))


@each_model
def test_one_pass_gives_the_stages_outputs_with_features_and_logits(spec: ModelSpec) -> None:
    network = spec.initial(CLASSES, (3, 32, 32), seed=0).eval()
    batch = torch.randn((2, 3, 32, 32))
    stages, features, logits = network.staged(batch)
    assert len(stages) == len(network.stages) >= 3
    assert all(output.ndim == 4 and len(output) == 2 for output in stages)
    sides = [output.shape[2] for output in stages]
    coarsest = sides.index(min(sides))
    assert sides[:coarsest] == sorted(sides[:coarsest], reverse=True)
    assert torch.equal(features, network.body(batch))
    assert torch.equal(logits, network(batch))


@each_model
def test_a_loss_on_a_stage_s_output_reaches_the_body_and_no_hook_stays(spec: ModelSpec) -> None:
    network = spec.initial(CLASSES, SHAPE, seed=0)
    sum(output.square().mean() for output in network.staged(images())[0]).backward()
    assert all(parameter.grad is None for parameter in network.head.parameters())
    assert next(network.body.parameters()).grad is not None
    assert not any(module._forward_hooks for module in network.modules())


@each_model
def test_a_step_is_the_same_to_the_bit_where_only_exact_operations_are_allowed(spec: ModelSpec) -> None:
    assert torch.get_deterministic_debug_mode() == 2
    one, again = (spec.initial(CLASSES, SHAPE, seed=0) for _ in range(2))
    for network in (one, again):
        loss_of(network).backward()
    assert all(
        torch.equal(ours.grad, theirs.grad) for ours, theirs in zip(one.parameters(), again.parameters(), strict=True)
    )


# Of the operations that torch.use_deterministic_algorithms names as having no exact gradient on CUDA, those that a network of images could use.
INEXACT = re.compile(
    "Adaptive(Avg|Max)Pool|(Avg|Max)Pool3D|FractionalMaxPool|MaxUnpool|Upsample|(Reflection|Replication)Pad|GridSampler|NllLoss2D|Median|Cumsum|Put"
)


@each_model
def test_no_gradient_needs_an_operation_that_is_inexact_on_a_gpu(spec: ModelSpec) -> None:
    """The mean over whole images, which AdaptiveAvgPool2d(1) is, counts as MeanBackward."""
    logits = spec.initial(CLASSES, SHAPE, seed=0)(images())
    seen, left = set(), [task_loss.loss(logits, wanted(logits)).grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    names = {node.name() for node in seen}
    assert any("Convolution" in name for name in names)
    assert not [name for name in names if INEXACT.search(name)]


@each_model
def test_the_seed_alone_decides_the_first_weights(spec: ModelSpec) -> None:
    one, again, other = (spec.initial(CLASSES, SHAPE, seed) for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)


@each_model
def test_drawing_weights_leaves_the_global_stream_alone(spec: ModelSpec) -> None:
    before = torch.get_rng_state()
    spec.initial(CLASSES, SHAPE, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@each_model
def test_eight_images_are_learnt_by_heart(spec: ModelSpec) -> None:
    network = spec.initial(CLASSES, SHAPE, seed=0).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(30):
        loss = loss_of(network)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.05:
            break
    logits = network(images())
    assert (logits.argmax(1) == wanted(logits)).all()
    assert loss < 0.1


@each_model
def test_a_model_comes_back_from_its_file_as_it_was(spec: ModelSpec, tmp_path: Path) -> None:
    network = spec.initial(CLASSES, SHAPE, seed=3).train()
    network(images())  # moves the batch-norm statistics away from their start
    card = model_file.Card(spec.model_dump(), CLASSES, SHAPE, "c1", 8)
    for name in ("one", "two"):
        model_file.save_network(tmp_path / name, network, card)
    loaded, read = model_file.load_network(tmp_path / "one", classes=CLASSES, shape=SHAPE)
    assert same(loaded, network)
    assert read == card
    assert read.spec == spec
    assert torch.equal(loaded.eval()(images()), network.eval()(images()))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@each_model
def test_nothing_is_drawn_for_weights_that_are_read_from_a_file(spec: ModelSpec) -> None:
    with torch.random.fork_rng(), Undrawn():
        before = torch.get_rng_state()
        network = spec.build(CLASSES, SHAPE)
        assert torch.equal(torch.get_rng_state(), before)
    assert {name: value.shape for name, value in network.state_dict().items()} == {
        name: value.shape for name, value in spec.hollow(CLASSES, SHAPE).state_dict().items()
    }


@each_model
def test_an_image_does_not_see_its_neighbours_when_scored(spec: ModelSpec) -> None:
    network: Network = spec.initial(CLASSES, SHAPE, seed=0).eval()
    with torch.inference_mode():
        assert torch.allclose(network(images())[2:5], network(images()[2:5]), atol=1e-5)
