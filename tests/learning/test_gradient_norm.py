"""squared_norms, compared with autograd for one output at a time."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from codline.learning.gradient_norm import GradientSample, squared_norms
from codline.learning.inference import Normalize
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn


def squared_norm_by_hand(network: Network, image: Tensor) -> float:
    total = 0.0
    for output in range(network(image[None]).shape[1]):
        network.zero_grad()
        network(image[None])[0, output].backward()
        total += sum(float(value.grad.square().sum()) for value in network.parameters() if value.grad is not None)
    return total


@pytest.mark.parametrize("count", [1, 8, 11])
def test_squared_norms_are_those_of_the_whole_jacobian(count: int) -> None:
    network = SmallCnn(width=2).initial_network(3, (1, 8, 8), seed=0)
    network(torch.randn(16, 1, 8, 8))  # so that batch-norm statistics differ from the initial ones
    images = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = [squared_norm_by_hand(network.eval(), image) for image in images]
    assert squared_norms(network, images).tolist() == pytest.approx(expected, rel=1e-4)


def test_squared_norms_do_not_vanish_for_confident_outputs() -> None:
    """They are those of the logits: of a linear layer, the squared inputs and 1 for the bias, for every class."""
    network = Network(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        network.head.weight[0] += 20
    assert squared_norms(network, torch.ones(1, 1, 2, 2)).tolist() == pytest.approx([2 * (4 + 1)])


def test_squared_norms_leave_the_network_unchanged() -> None:
    network = SmallCnn(width=2).initial_network(3, (1, 8, 8), seed=0)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    squared_norms(network, torch.randn(3, 1, 8, 8))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())


def test_gradient_sample_has_half_of_its_images_from_each_pool_and_weights_pools_by_their_size() -> None:
    network, taken = Network(nn.Flatten(), nn.Linear(1, 1)), list[np.ndarray]()

    def take(ids: np.ndarray) -> np.ndarray:
        taken.append(ids)
        return np.where(ids < 10, 255, 0).astype(np.uint8).reshape(-1, 1, 1, 1)

    pools = {"labeled": np.arange(10), "unlabeled": np.arange(10, 40)}
    sample = GradientSample(pools, 8, np.random.default_rng(0), take)
    assert [len(set(ids)) for ids in taken] == [4, 4]
    assert all(np.isin(ids, pool).all() for ids, pool in zip(taken, pools.values(), strict=True))
    norms = sample.measure(network, Normalize([0.0], [1.0], torch.device("cpu")))
    # A labeled image has 1 for its pixel and 1 for the bias, an unlabeled one has only the latter.
    assert norms == pytest.approx({"labeled": 2, "unlabeled": 1, "all": 1.25, "variation": 0.433013 / 1.25}, rel=1e-5)


def test_gradient_sample_leaves_out_an_empty_pool() -> None:
    pools = {"labeled": np.arange(3), "unlabeled": np.arange(0)}
    sample = GradientSample(pools, 8, np.random.default_rng(0), lambda ids: np.ones((len(ids), 1, 1, 1), np.uint8))
    network = Network(nn.Flatten(), nn.Linear(1, 1))
    assert set(sample.measure(network, Normalize([0.0], [1.0], torch.device("cpu")))) == {"labeled", "all", "variation"}
