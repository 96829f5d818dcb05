"""CoreGCN (Caramalau et al., 2021): core-set in the space of a graph network that tells labelled from unlabelled images."""

from typing import Literal

import numpy as np

from codline.acquisition.distances import Points
from codline.acquisition.k_center import k_center
from codline.strategies.base import Whole
from codline.strategies.learner_base import GraphLearner


class CoreGcn(GraphLearner):
    """Caramalau, Bhattarai, Kim: Sequential Graph Convolutional Network for Active Learning (CVPR 2021). docs/strategies.md says what differs."""

    name: Literal["core_gcn"] = "core_gcn"

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        nodes = self.nodes(pool, budget, rng)
        ids: np.ndarray = nodes.ids[
            k_center(Points.of(np.concatenate([nodes.embedded, nodes.known])), len(nodes.ids), budget)
        ]
        return ids
