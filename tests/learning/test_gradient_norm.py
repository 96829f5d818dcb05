"""squared_norms, compared with autograd for one output at a time."""

import pytest
import torch
from torch import Tensor, nn

from codline.learning.gradient_norm import squared_norms
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn


def squared_norm_by_hand(network: Network, image: Tensor) -> float:
    total = 0.0
    for output in range(network(image[None]).shape[1]):
        network.zero_grad()
        network(image[None]).softmax(1)[0, output].backward()
        total += sum(float(value.grad.square().sum()) for value in network.parameters() if value.grad is not None)
    return total


@pytest.mark.parametrize("count", [1, 8, 11])
def test_squared_norms_are_those_of_the_whole_jacobian(count: int) -> None:
    network = SmallCnn(width=2).initial_network(3, (1, 8, 8), seed=0)
    network(torch.randn(16, 1, 8, 8))  # so that batch-norm statistics differ from the initial ones
    images = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = [squared_norm_by_hand(network.eval(), image) for image in images]
    assert squared_norms(network, images).tolist() == pytest.approx(expected, rel=1e-4)


def test_squared_norms_vanish_for_confident_outputs() -> None:
    network = Network(nn.Flatten(), nn.Linear(4, 2))
    images = torch.ones(1, 1, 2, 2)
    before = squared_norms(network, images)
    with torch.no_grad():
        network.head.weight[0] += 20
    assert squared_norms(network, images) < 1e-6 < before


def test_squared_norms_leave_the_network_unchanged() -> None:
    network = SmallCnn(width=2).initial_network(3, (1, 8, 8), seed=0)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    squared_norms(network, torch.randn(3, 1, 8, 8))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())
