"""The graph network against its formulas with explicit matrices, and its strategies on pools with a known answer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from codline.acquisition.graph_network import Affinity, GraphNetwork, graph_loss
from codline.strategies.base import PoolFeatures
from codline.strategies.core_gcn import CoreGcn
from codline.strategies.learner_base import GraphLearner
from codline.strategies.uncertain_gcn import UncertainGcn
from tests.pools import make_pool, select_ids


def make_nodes(count: int = 7) -> torch.Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def make_network(nodes: torch.Tensor, hidden: int) -> GraphNetwork:
    return GraphNetwork(Affinity(nodes.float()), hidden, 0.3, torch.Generator().manual_seed(1))


def explicit_affinity(features: torch.Tensor) -> torch.Tensor:
    """The n x n matrix of the paper."""
    unit = features / features.norm(dim=1, keepdim=True)
    cosines = unit @ unit.T - torch.eye(len(unit))
    return cosines @ torch.diag(1 / cosines.sum(0)) + torch.eye(len(unit))


def test_affinity_multiplies_like_the_explicit_matrix() -> None:
    nodes = make_nodes()
    product = Affinity(nodes) @ torch.eye(7, dtype=torch.float64)
    assert torch.allclose(product, explicit_affinity(nodes))


def test_affinity_of_a_node_without_features_is_the_identity() -> None:
    nodes = make_nodes()
    nodes[2] = 0
    product = (Affinity(nodes) @ torch.eye(7, dtype=torch.float64)).numpy()
    assert np.array_equal(product[2], np.eye(7)[2])
    assert np.array_equal(product[:, 2], np.eye(7)[2])


def test_network_is_two_graph_convolutions() -> None:
    nodes = make_nodes().float()
    network = make_network(nodes, hidden=4).eval()
    affinity, unit = explicit_affinity(nodes), nodes / nodes.norm(dim=1, keepdim=True)
    expected_hidden = torch.relu(affinity @ (unit @ network.first[0]) + network.first[1])
    expected_logits = affinity @ (expected_hidden @ network.second[0]) + network.second[1]
    hidden, logits = network()
    assert torch.allclose(hidden, expected_hidden, atol=1e-5)
    assert torch.allclose(logits, expected_logits, atol=1e-5)


def test_network_weights_are_uniform_within_one_by_the_root_of_the_outputs() -> None:
    network = make_network(make_nodes(), hidden=100)
    assert 0.09 < float(network.first[0].detach().abs().max()) <= 0.1
    assert float(network.second[0].detach().abs().max()) > 0.9


def test_dropout_zeroes_its_share_and_preserves_the_mean() -> None:
    network = make_network(make_nodes(200), hidden=50)
    dropped, undropped = network()[0].detach(), network.eval()()[0].detach()
    assert float((dropped[undropped > 0] == 0).float().mean()) == pytest.approx(0.3, abs=0.03)
    assert float(dropped.mean()) == pytest.approx(float(undropped.mean()), rel=0.1)


def test_graph_loss_is_that_of_the_paper() -> None:
    probs = torch.tensor([0.2, 0.4, 0.9])
    expected = -np.log(0.9) - 1.2 * (np.log(0.8) + np.log(0.6)) / 2
    assert float(graph_loss(probs.logit(), 1, 1.2)) == pytest.approx(expected, rel=1e-5)


def make_two_directions() -> PoolFeatures:
    """Features of labeled images and of even ids have one direction, those of odd ids another."""
    directions = np.array([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
    pool, ids = make_pool(images=20, classes=3), np.arange(20)
    features = directions[ids % 2] + 0.01 * np.random.default_rng(0).random((20, 5))
    labeled = replace(pool.labeled, features_MD=np.repeat(directions[:1], 6, axis=0).astype(np.float32))
    return replace(pool, ids=ids, features_ND=features.astype(np.float32), labeled=labeled)


@pytest.mark.parametrize(("strategy", "budget"), [(UncertainGcn(margin=0.0, learning_rate=0.01), 10), (CoreGcn(), 1)])
def test_graph_strategies_select_images_unlike_the_labeled_ones_first(strategy: GraphLearner, budget: int) -> None:
    assert all(i % 2 == 1 for i in select_ids(strategy, make_two_directions(), budget))


def test_uncertain_gcn_selects_the_image_closest_to_its_margin() -> None:
    pool, strategy = make_two_directions(), UncertainGcn()
    nodes = strategy.train_nodes(pool, 20, np.random.default_rng(0))
    assert nodes.labeled_probs[::2].min() > nodes.labeled_probs[1::2].max()
    assert select_ids(strategy.model_copy(update={"margin": float(nodes.labeled_probs[7])}), pool, 1) == [7]


def test_graph_candidates_are_a_random_subset_but_never_fewer_than_the_budget() -> None:
    pool, strategy = make_two_directions(), CoreGcn(subset=4, steps=1)
    first, same, other = (strategy.train_nodes(pool, 2, np.random.default_rng(seed)).ids for seed in (1, 1, 2))
    assert len(first) == 4
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    assert len(select_ids(strategy, pool, 9)) == 9
