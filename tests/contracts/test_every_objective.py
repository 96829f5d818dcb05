"""Contract of every unsupervised objective: its loss trains the network and the auxiliary module's own parameters."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from codline.cli.plugins import members
from codline.learning.fit import TrainingData, TrainingRun
from codline.learning.inference import Normalize
from codline.learning.recipe import Recipe
from codline.models.networks.network import Network
from codline.objectives.base import DiscrepancyObjective, Objective, TrainingBatch, TrainingContext
from codline.objectives.cyclic import CyclicObjective
from codline.objectives.ema import EmaObjective
from codline.objectives.modules.base import AuxiliaryModule
from codline.objectives.modules.teacher import Teacher
from tests.families import variant_id, variants


def make_network(seed: int) -> Network:
    torch.manual_seed(seed)
    return Network(nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 3), stages=("0", "1"))


def make_context(previous: Network | None) -> TrainingContext:
    return TrainingContext(image_shape=(2,), previous_network=previous, make_independent=lambda: make_network(99))


def make_auxiliary(objective: Objective, network: Network, previous: Network | None = None) -> AuxiliaryModule:
    auxiliary = objective.make_auxiliary(network, make_context(previous or copy.deepcopy(network)))
    assert auxiliary is not None
    return auxiliary


def make_teacher(objective: EmaObjective, network: Network) -> Teacher:
    return objective.make_auxiliary(network, make_context(copy.deepcopy(network)))


def make_batch(network: Network, images: Tensor) -> TrainingBatch:
    stages, features, logits = network.forward_with_stages(images)
    return TrainingBatch(images, features, logits, stages, -logits.log_softmax(1)[:, 0])


def random_batches(network: Network) -> tuple[TrainingBatch, TrainingBatch]:
    torch.manual_seed(5)
    labeled, unlabeled = make_batch(network, torch.randn(6, 2)), make_batch(network, torch.randn(5, 2))
    return labeled, replace(unlabeled, view_logits=network(unlabeled.images + 0.1))


def fill_head(network: Network, value: float) -> None:
    with torch.no_grad():
        network.head.weight.fill_(value)


def head_weight(teacher: Teacher) -> float:
    return float(teacher.average.module.head.weight[0, 0])


ALWAYS_ACTIVE = {"fixmatch": {"threshold": 0.0}}  # parameters with which the loss is not 0 for untrained networks
OBJECTIVES = [each.model_copy(update=ALWAYS_ACTIVE.get(each.name, {})) for each in variants("objectives")]
each_objective = pytest.mark.parametrize("objective", OBJECTIVES, ids=variant_id)


PAIRS = list(itertools.permutations((kind.model_fields["name"].default for kind in members("objectives")), 2))


def step_loss(*objectives: dict[str, Any]) -> float:
    """The loss that these objectives add to the task loss of the first step of a second cycle."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), np.uint8)
    labels = np.arange(8, dtype=np.int32) % 3
    data = TrainingData(
        pixels.__getitem__, np.arange(8), labels, np.arange(8, 40), Normalize([0.5], [0.3], torch.device("cpu"))
    )
    settings = {"epochs": 1, "batch_size": 8, "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    settings |= {"decay_at": 1.0, "decay_by": 0.1, "start_from": "previous", "augment": {}}
    recipe = Recipe.model_validate(settings | {"objectives": list(objectives)})
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten())
    network, previous = (Network(copy.deepcopy(body), nn.Linear(144, 3), stages=("0", "1")) for _ in range(2))
    context = TrainingContext((3, 8, 8), previous, lambda: copy.deepcopy(previous))
    run = TrainingRun(network, data, recipe, context, seed=0)
    _, added, _ = run.compute_losses(np.arange(8))
    return float(added.detach())


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_losses_of_two_objectives_add_up(first: str, second: str) -> None:
    # The average does not start as a copy, so that its loss is not 0 in the first step.
    not_zero = ALWAYS_ACTIVE | {"ema": {"start": "independent"}}
    pair = [{"name": name} | not_zero.get(name, {}) for name in (first, second)]
    alone = [step_loss(objective) for objective in pair]
    assert min(alone) > 0
    assert step_loss(*pair) == pytest.approx(sum(alone), rel=1e-4)


@pytest.mark.parametrize("kind", members("objectives"))
def test_objective_is_named_like_its_file(kind: type[Objective]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@pytest.mark.parametrize(
    "objective", [each for each in OBJECTIVES if isinstance(each, DiscrepancyObjective)], ids=variant_id
)
def test_distance_is_zero_for_equal_outputs(objective: DiscrepancyObjective) -> None:
    logits = torch.randn(6, 4)
    assert objective.distance(logits, logits.clone()) == 0


@each_objective
def test_loss_has_gradients_for_the_network_and_the_trainable_parameters_alone(objective: Objective) -> None:
    network = make_network(0)
    auxiliary = make_auxiliary(objective, network)
    with torch.no_grad():
        network.head.weight.add_(torch.randn(3, 4))
    auxiliary.loss(*random_batches(network)).backward()  # type: ignore[no-untyped-call]
    trained = network.body if auxiliary.uses_stages else network  # the stages are parts of the body
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trained.parameters())
    with_gradient = {parameter for parameter in auxiliary.parameters() if parameter.grad is not None}
    assert with_gradient == set(auxiliary.trainable_parameters())


@each_objective
def test_auxiliary_module_shares_no_tensor_with_the_network(objective: Objective) -> None:
    network = make_network(0)
    auxiliary = make_auxiliary(objective, network)
    before = {key: value.clone() for key, value in auxiliary.state_dict().items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(value, before[key]) for key, value in auxiliary.state_dict().items())


@each_objective
def test_weight_scales_the_loss(objective: DiscrepancyObjective) -> None:
    network, previous = make_network(0), make_network(1)
    losses = []
    for weight in (1.0, 3.0):
        torch.manual_seed(0)
        auxiliary = make_auxiliary(objective.model_copy(update={"weight": weight}), previous, previous)
        losses.append(float(auxiliary.loss(*random_batches(network)).detach()))
    assert losses[1] == pytest.approx(3 * losses[0], rel=1e-4)
    assert losses[0] > 0


@pytest.mark.parametrize(("reduce", "factor"), [("sum", 1), ("mean", 1 / 2)])
def test_distance_is_the_squared_distance_of_the_outputs(reduce: str, factor: float) -> None:
    ours, theirs = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 3.0]])
    objective = EmaObjective.model_validate({"outputs": "logits", "reduce": reduce})
    assert objective.distance(ours, theirs) == pytest.approx(factor * (5 + 9) / 2)
    expected = (ours.softmax(1) - theirs.softmax(1)).square().sum(1).mean()
    of_probs = objective.model_copy(update={"outputs": "probs"})
    assert of_probs.distance(ours, theirs) == pytest.approx(factor * expected)


def test_distance_of_dense_outputs_is_a_mean_over_the_pixels() -> None:
    ours, theirs = torch.zeros(2, 3, 4, 5), torch.ones(2, 3, 4, 5)
    assert EmaObjective(outputs="logits").distance(ours, theirs) == 3


def test_ema_with_two_heads_adds_the_four_terms_of_the_released_code() -> None:
    """Head 1 to head 2 and head 2 to the teacher, for labeled and for unlabeled images."""
    network = make_network(0)
    objective = EmaObjective(weight=2.0, heads=2, outputs="logits", reduce="mean", start="independent")
    teacher, batches = make_teacher(objective, network), random_batches(network)
    assert teacher.second is not None
    terms = []
    for batch in batches:
        second, target = teacher.second(batch.features), make_network(99)(batch.images)
        terms += [nn.functional.mse_loss(batch.logits, second), nn.functional.mse_loss(second, target)]
    assert float(teacher.loss(*batches).detach()) == pytest.approx(2 * float(sum(terms).detach()), rel=1e-5)
    assert not torch.equal(teacher.second.weight, network.head.weight)


@pytest.mark.parametrize("decay", [0.0, 0.6, 0.999])
@pytest.mark.parametrize("warm_up", [True, False])
def test_teacher_averages_the_weights_as_computed_by_hand(decay: float, warm_up: bool) -> None:
    """The first update copies the weights; with a warm-up, the n-th next one keeps min(decay, n/(n+1))."""
    network = make_network(0)
    teacher = make_teacher(EmaObjective(decay=decay, warm_up=warm_up), network)
    expected = 0.0
    for n, value in enumerate([4.0, 10.0, -2.0, 7.0, 1.0]):
        fill_head(network, value)
        teacher.update(network)
        keep = min(decay, n / (n + 1)) if warm_up or n == 0 else decay
        expected = keep * expected + (1 - keep) * value
        assert head_weight(teacher) == pytest.approx(expected, rel=1e-6)


def test_teacher_with_an_independent_start_forgets_it_as_the_released_code_does() -> None:
    """After t steps the start has the weight 1/(t+1)."""
    network = make_network(0)
    teacher = make_teacher(EmaObjective(start="independent"), network)
    start = float(make_network(99).head.weight[0, 0].detach())
    fill_head(network, 3.0)
    for t in range(1, 6):
        teacher.update(network)
        assert head_weight(teacher) == pytest.approx((start + 3.0 * t) / (t + 1), rel=1e-5)


@pytest.mark.parametrize("buffers", ["batch", "averaged"])
def test_teacher_averages_normalization_statistics_only_if_configured(buffers: str) -> None:
    network = Network(nn.BatchNorm1d(2), nn.Linear(2, 3))
    teacher = make_teacher(EmaObjective.model_validate({"buffers": buffers}), network)
    for _ in range(3):
        network.body(torch.randn(8, 2) + 5)
        teacher.update(network)
    ours, averaged = network.body.running_mean, teacher.average.module.body.running_mean
    assert torch.equal(ours, averaged) == (buffers == "batch")
    assert averaged.abs().sum() > 0


def test_teacher_continues_from_the_previous_cycle_if_it_persists() -> None:
    network = make_network(0)
    previous = make_teacher(EmaObjective(), network)
    fill_head(network, 3.0)
    previous.update(network)
    context = TrainingContext((2,), network, lambda: make_network(1), {"ema": previous.state_dict()})
    continued, new = (
        EmaObjective(persists=persists).make_auxiliary(make_network(7), context) for persists in (True, False)
    )
    assert head_weight(continued) == 3.0
    assert int(continued.average.n_averaged) == 1
    assert head_weight(new) != 3.0


def test_cyclic_objective_has_no_auxiliary_module_in_the_first_cycle() -> None:
    assert CyclicObjective().make_auxiliary(make_network(0), make_context(None)) is None


def test_cyclic_objective_compares_with_the_previous_cycles_model() -> None:
    network, previous, images = make_network(0), make_network(1), torch.randn(5, 2)
    auxiliary = make_auxiliary(CyclicObjective(weight=1.0, outputs="logits"), network, previous)
    expected = (network(images) - previous(images)).square().sum(1).mean()
    loss = auxiliary.loss(make_batch(network, images), make_batch(network, images))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.parametrize(
    ("parameters", "decay"),
    [({}, 0.999), ({"decay": 0.98}, 0.98), ({"horizon": 1 / 7}, 0.999), ({"horizon": 1e-6}, 0.0)],
)
def test_ema_decays_as_given_or_by_a_share_of_the_steps(parameters: dict[str, float], decay: float) -> None:
    assert EmaObjective.model_validate(parameters).decay_over(7000) == pytest.approx(decay)


def test_ema_without_a_weight_keeps_a_teacher_that_has_no_loss() -> None:
    assert not make_auxiliary(EmaObjective(weight=0.0), make_network(0)).has_loss
