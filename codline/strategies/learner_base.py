"""Base classes of strategies that train a network of their own. docs/strategies.md: differences from the papers."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from codline.acquisition.features import sort_by_id
from codline.core.errors import DataError
from codline.strategies.base import BatchStrategy, LabeledFeatures, Outputs, PoolFeatures, PoolSize


def sort_pool(pool: PoolFeatures) -> PoolFeatures:
    """The pool in ascending id order, because training depends on the order of images. Checks that it is finite."""
    ids, labeled, outputs = pool.ids, pool.labeled, pool.outputs
    if not len(labeled.ids):
        raise DataError("found no labelled image, expected one at least: the strategy learns from them")
    return replace(
        pool,
        ids=np.sort(ids),
        outputs=Outputs(sort_by_id(ids, outputs.logits_NC, "outputs"), sort_by_id(ids, outputs.probs_NC, "outputs")),
        features_ND=sort_by_id(ids, pool.features_ND),
        predicted_losses=sort_losses(ids, pool.predicted_losses),
        labeled=LabeledFeatures(
            np.sort(labeled.ids),
            labeled.labels[np.argsort(labeled.ids)],
            sort_by_id(labeled.ids, labeled.features_MD),
            sort_losses(labeled.ids, labeled.predicted_losses),
        ),
    )


def sort_losses(ids: np.ndarray, losses: np.ndarray | None) -> np.ndarray | None:
    return None if losses is None else sort_by_id(ids, losses, "predicted loss")


@dataclass(frozen=True)
class GraphNodes:
    """The graph network's outputs for the candidates and the labeled images."""

    ids: np.ndarray  # of the candidates
    labeled_probs: np.ndarray  # probability that a candidate is labeled
    embeddings: np.ndarray  # of the candidates
    labeled_embeddings: np.ndarray


class GraphLearner(BatchStrategy):
    """Parameters and training of the graph network; defaults as in the released code."""

    feature_copies: ClassVar[float] = 1
    output_copies: ClassVar[float] = 1.5
    subset: PositiveInt | None = 10_000  # random candidates, never fewer than the budget; null: the whole pool
    hidden: PositiveInt = 128
    dropout: float = Field(default=0.3, ge=0, lt=1)
    balance: PositiveFloat = 1.2  # the paper's lambda: weight of the unlabeled nodes' loss
    steps: PositiveInt = 200
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 5e-4

    def working_bytes(self, size: PoolSize) -> float:
        """The sorted pool, and for every node five copies of its features and ten of its hidden units."""
        nodes = size.rows if self.subset is None else min(size.rows, max(self.subset, size.budget) + size.labeled)
        return super().working_bytes(size) + nodes * 4 * (5 * size.features + 10 * self.hidden)

    def train_nodes(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> GraphNodes:
        from codline.acquisition.graph_network import GraphSettings, train_graph_network  # imports torch

        pool = sort_pool(pool)
        size = len(pool.ids) if self.subset is None else min(max(self.subset, budget), len(pool.ids))
        rows = np.sort(rng.choice(len(pool.ids), size, replace=False))
        features = np.concatenate([pool.features_ND[rows], pool.labeled.features_MD])
        settings = GraphSettings(**self.model_dump(exclude={"name", "subset", "margin"}))
        probs, embeddings = train_graph_network(features, len(pool.labeled.ids), settings, pool.context)
        return GraphNodes(pool.ids[rows], probs[:size], embeddings[:size], embeddings[size:])


class AdversarialLearner(BatchStrategy):
    """Parameters of the adversarial autoencoder; defaults as in VAAL's released code."""

    feature_copies: ClassVar[float] = 1
    output_copies: ClassVar[float] = 1.5
    steps: PositiveInt = 39_062  # a hundred epochs of 50,000 images
    batch_size: int = Field(default=128, ge=2)  # of labeled images, and as many unlabeled ones
    latent: PositiveInt = 32
    width: PositiveInt = 128  # channels of the first convolution; use fewer, and fewer steps, on a CPU
    beta: NonNegativeFloat = 1.0  # weight of the codes' KL divergence
    adversary: NonNegativeFloat = 1.0  # weight of the adversarial loss
    learning_rate: PositiveFloat = 5e-4
