"""What every unsupervised objective promises: it pulls the network, and the network alone, and is content when the outputs agree."""

import pytest
import torch
from torch import nn

from codline.families import members
from codline.objectives.base import Companion, Objective
from codline.objectives.ema import Ema
from tests.families import spelled, variants

WITH_COMPANION = [objective for objective in variants("objectives") if objective.companion(nn.Linear(2, 3)) is not None]
each_companion = pytest.mark.parametrize("objective", WITH_COMPANION, ids=spelled)


def companion_of(objective: Objective, network: nn.Module) -> Companion:
    companion = objective.companion(network)
    assert companion is not None
    return companion


@pytest.mark.parametrize("kind", members("objectives"))
def test_an_objective_is_named_like_its_file(kind: type[Objective]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_companion
def test_the_loss_is_zero_where_both_outputs_agree(objective: Objective) -> None:
    logits = torch.randn(6, 4)
    assert objective.loss(logits, logits.clone()) == 0


@each_companion
def test_the_gradient_reaches_the_network_alone(objective: Objective) -> None:
    network, images = nn.Linear(2, 3), torch.randn(5, 2)
    companion = companion_of(objective, network)
    with torch.no_grad():
        network.weight.add_(1.0)
    objective.loss(network(images), companion.logits(images)).backward()
    assert network.weight.grad is not None
    assert network.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in companion.parameters())


@each_companion
def test_the_companion_starts_as_the_network_and_is_a_copy(objective: Objective) -> None:
    network, images = nn.Linear(2, 3), torch.randn(5, 2)
    companion = companion_of(objective, network)
    assert torch.equal(companion.logits(images), network(images))
    with torch.no_grad():
        network.weight.add_(1.0)
    assert not torch.equal(companion.logits(images), network(images))


@each_companion
def test_the_weight_scales_the_loss(objective: Objective) -> None:
    ours, theirs = torch.randn(6, 4), torch.randn(6, 4)
    light, heavy = (objective.model_copy(update={"weight": weight}).loss(ours, theirs) for weight in (1.0, 3.0))
    assert heavy == pytest.approx(3 * light)
    assert light > 0


def test_the_loss_is_the_squared_distance_of_the_outputs() -> None:
    ours, theirs = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 3.0]])
    assert Ema(weight=2.0, outputs="logits").loss(ours, theirs) == pytest.approx(2 * (5 + 9) / 2)
    apart = (ours.softmax(1) - theirs.softmax(1)).square().sum(1).mean()
    assert Ema(weight=2.0, outputs="probs").loss(ours, theirs) == pytest.approx(2 * apart)


@pytest.mark.parametrize("decay", [0.0, 0.6, 0.999])
def test_the_average_follows_the_weights_as_computed_by_hand(decay: float) -> None:
    """The first update takes the weights as they are; the n-th after it keeps n/(n+1) of the average, at most `decay`."""
    network = nn.Linear(1, 1, bias=False)
    companion = companion_of(Ema(decay=decay), network)
    expected, image = 0.0, torch.ones(1, 1)
    for n, value in enumerate([4.0, 10.0, -2.0, 7.0, 1.0]):
        with torch.no_grad():
            network.weight.fill_(value)
        companion.update(network)
        keep = min(decay, n / (n + 1))
        expected = keep * expected + (1 - keep) * value
        assert float(companion.logits(image)) == pytest.approx(expected, rel=1e-6)
