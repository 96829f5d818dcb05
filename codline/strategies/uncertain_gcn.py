"""UncertainGCN (Caramalau et al., 2021): images that a graph network is least certain are unlabeled."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import GraphLearner


class UncertainGcn(GraphLearner):
    """Caramalau, Bhattarai, Kim: Sequential Graph Convolutional Network for Active Learning (CVPR 2021)."""

    name: Literal["uncertain_gcn"] = "uncertain_gcn"
    # The paper's s_margin: selected are the images whose probability of being labeled is closest to it.
    margin: float = Field(default=0.1, ge=0, le=1)

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        nodes = self.train_nodes(pool, budget, rng)
        return nodes.ids[np.argsort(np.abs(nodes.labeled_probs - self.margin), kind="stable")[:budget]]
