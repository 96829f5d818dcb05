"""CoreGCN (Caramalau et al., 2021): core-set on the embeddings of a graph network that separates labeled images."""

from typing import Literal

import numpy as np

from codline.acquisition.distances import Points
from codline.acquisition.k_center import k_center
from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import GraphLearner


class CoreGcn(GraphLearner):
    """Caramalau, Bhattarai, Kim: Sequential Graph Convolutional Network for Active Learning (CVPR 2021)."""

    name: Literal["core_gcn"] = "core_gcn"

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        nodes = self.train_nodes(pool, budget, rng)
        points = Points.from_rows(np.concatenate([nodes.embeddings, nodes.labeled_embeddings]))
        query: np.ndarray = nodes.ids[k_center(points, len(nodes.ids), budget)]
        return query
