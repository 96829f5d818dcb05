"""The graph network against its formulas written out, and the strategies that use it on pools whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from codline.acquisition import graph_network
from codline.strategies.base import Whole
from codline.strategies.core_gcn import CoreGcn
from codline.strategies.learner_base import GraphLearner
from codline.strategies.uncertain_gcn import UncertainGcn
from tests.contracts.test_every_chooser import whole_of

SETTINGS = graph_network.Settings(hidden=4, dropout=0.3, balance=1.2, steps=3, learning_rate=1e-3, weight_decay=0.0)


def nodes(count: int = 7) -> torch.Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def written_out(features: np.ndarray) -> np.ndarray:
    """The n x n matrix of the paper."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    alike = unit @ unit.T - np.eye(len(unit))
    matrix: np.ndarray = alike @ np.diag(1 / alike.sum(0)) + np.eye(len(unit))
    return matrix


def test_the_affinity_is_the_matrix_of_the_paper_without_the_matrix() -> None:
    features = nodes()
    product = graph_network.Affinity(features) @ torch.eye(7, dtype=torch.float64)
    assert product.numpy() == pytest.approx(written_out(features.numpy()))


def test_a_node_without_features_keeps_to_itself() -> None:
    features = nodes()
    features[2] = 0
    product = (graph_network.Affinity(features) @ torch.eye(7, dtype=torch.float64)).numpy()
    assert np.array_equal(product[2], np.eye(7)[2])
    assert np.array_equal(product[:, 2], np.eye(7)[2])


def test_the_network_is_two_convolutions_with_the_affinity() -> None:
    features = nodes().float()
    network = graph_network.GraphNetwork(
        graph_network.Affinity(features), 4, 0.3, torch.Generator().manual_seed(1)
    ).eval()
    matrix, unit = (
        torch.from_numpy(array).float()
        for array in (written_out(features.numpy()), features.numpy() / np.linalg.norm(features, axis=1)[:, None])
    )
    hidden = torch.relu(matrix @ (unit @ network.first[0]) + network.first[1])
    logits = matrix @ (hidden @ network.second[0]) + network.second[1]
    found = network()
    assert torch.allclose(found[0], hidden, atol=1e-5)
    assert torch.allclose(found[1], logits, atol=1e-5)


def test_weights_are_drawn_within_one_by_the_root_of_the_outputs() -> None:
    network = graph_network.GraphNetwork(
        graph_network.Affinity(nodes().float()), 100, 0.3, torch.Generator().manual_seed(1)
    )
    assert 0.09 < float(network.first[0].detach().abs().max()) <= 0.1
    assert float(network.second[0].detach().abs().max()) > 0.9


def test_dropout_leaves_out_its_share_and_keeps_the_mean() -> None:
    network = graph_network.GraphNetwork(
        graph_network.Affinity(nodes(200).float()), 50, 0.3, torch.Generator().manual_seed(1)
    )
    dropped, whole = network()[0].detach(), network.eval()()[0].detach()
    assert float((dropped[whole > 0] == 0).float().mean()) == pytest.approx(0.3, abs=0.03)
    assert float(dropped.mean()) == pytest.approx(float(whole.mean()), rel=0.1)


def test_the_loss_is_the_paper_s() -> None:
    scores = torch.tensor([0.2, 0.4, 0.9])
    expected = -np.log(0.9) - 1.2 * (np.log(0.8) + np.log(0.6)) / 2
    assert float(graph_network.loss(scores.logit(), 1, 1.2)) == pytest.approx(expected, rel=1e-5)


def two_kinds() -> Whole:
    """Labelled images point one way; of the unlabelled ones, half do so, too, and those with odd ids another way."""
    pool, rng = whole_of(images=20, classes=3), np.random.default_rng(0)
    ways = np.array([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
    ids = np.arange(20)
    features = (ways[ids % 2] + 0.01 * rng.random((20, 5))).astype(np.float32)
    known = replace(pool.known, features_MD=np.repeat(ways[:1], 6, axis=0).astype(np.float32))
    return replace(pool, ids=ids, features_ND=features, known=known)


@pytest.mark.parametrize("strategy", [UncertainGcn(margin=0.0, learning_rate=0.01), CoreGcn()])
def test_images_unlike_the_labelled_ones_come_first(strategy: GraphLearner) -> None:
    budget = 10 if isinstance(strategy, UncertainGcn) else 1
    found = strategy.choose(two_kinds(), budget, np.random.default_rng(0))
    assert (found % 2 == 1).all()


def test_uncertain_gcn_wants_those_closest_to_its_margin() -> None:
    pool = two_kinds()
    strategy = UncertainGcn()
    nodes = strategy.nodes(pool, 20, np.random.default_rng(0))
    found = strategy.model_copy(update={"margin": float(nodes.labeledness[7])}).choose(
        pool, 1, np.random.default_rng(0)
    )
    assert found.tolist() == [7]
    assert nodes.labeledness[::2].min() > nodes.labeledness[1::2].max()


def test_candidates_are_drawn_when_there_are_more_than_the_subset_but_never_fewer_than_are_asked_for() -> None:
    pool, strategy = two_kinds(), CoreGcn(subset=4, steps=1)
    drawn = [strategy.nodes(pool, 2, np.random.default_rng(seed)).ids for seed in (1, 1, 2)]
    assert len(drawn[0]) == 4
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert len(strategy.choose(pool, 9, np.random.default_rng(0))) == 9
