"""UncertainGCN (Caramalau et al., 2021): images that a graph network on the features finds hard to tell from labelled ones."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.strategies.base import Whole
from codline.strategies.learner_base import GraphLearner


class UncertainGcn(GraphLearner):
    """Caramalau, Bhattarai, Kim: Sequential Graph Convolutional Network for Active Learning (CVPR 2021). docs/strategies.md says what differs."""

    name: Literal["uncertain_gcn"] = "uncertain_gcn"
    margin: float = Field(
        default=0.1, ge=0, le=1
    )  # s_margin: the closer to it how labelled an image looks, the more it is wanted

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        nodes = self.nodes(pool, budget, rng)
        return nodes.ids[np.argsort(np.abs(nodes.labeledness - self.margin), kind="stable")[:budget]]
