"""What the strategies that train a network of their own have in common: their parameters, and images in the order of their ids."""

from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from codline.acquisition.distances import by_id
from codline.core.errors import DataError
from codline.strategies.base import Chooser, Known, Outputs, Whole


def ordered(pool: Whole) -> Whole:
    """The same pool in the order of its ids: what is learned depends on the order in which it is seen. There is something to learn from, and it is finite."""
    if not len(pool.known.ids):
        raise DataError("found no labelled image, expected one at least: the strategy learns from them")
    ids, known = pool.ids, pool.known
    return replace(
        pool,
        ids=np.sort(ids),
        outputs=Outputs(by_id(ids, pool.outputs.logits_NC, "outputs"), by_id(ids, pool.outputs.probs_NC, "outputs")),
        features_ND=by_id(ids, pool.features_ND),
        predicted=None if pool.predicted is None else by_id(ids, pool.predicted, "foretold loss"),
        known=Known(
            np.sort(known.ids),
            known.labels[np.argsort(known.ids)],
            by_id(known.ids, known.features_MD),
            None if known.predicted is None else by_id(known.ids, known.predicted, "foretold loss"),
        ),
    )


@dataclass(frozen=True)
class Nodes:
    """What the graph network says of the candidates, and of the labelled images."""

    ids: np.ndarray  # of the candidates
    labeledness: np.ndarray  # of the candidates, between 0 and 1
    embedded: np.ndarray  # the candidates' hidden units and logit
    known: np.ndarray  # the labelled images'


class GraphLearner(Chooser):
    """The released code's parameters."""

    subset: PositiveInt | None = 10_000  # candidates, drawn at random, but never fewer than are asked for; all if null
    hidden: PositiveInt = 128
    dropout: float = Field(default=0.3, ge=0, lt=1)
    balance: PositiveFloat = 1.2  # lambda: the weight of the unlabelled nodes' loss
    steps: PositiveInt = 200
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 5e-4

    def nodes(self, pool: Whole, budget: int, rng: np.random.Generator) -> Nodes:
        from codline.acquisition import graph_network  # and torch

        pool = ordered(pool)
        size = len(pool.ids) if self.subset is None else min(max(self.subset, budget), len(pool.ids))
        rows = np.sort(rng.choice(len(pool.ids), size, replace=False))
        features = np.concatenate([pool.features_ND[rows], pool.known.features_MD])
        settings = graph_network.Settings(
            self.hidden, self.dropout, self.balance, self.steps, self.learning_rate, self.weight_decay
        )
        bench = pool.bench
        scores, embedded = graph_network.learned(
            features, len(pool.known.ids), settings, seed=bench.seed, device=bench.device, advance=bench.advance
        )
        return Nodes(pool.ids[rows], scores[:size], embedded[:size], embedded[size:])


class AdversarialLearner(Chooser):
    """The parameters of VAAL's released code."""

    steps: PositiveInt = 39_062  # a hundred epochs of 50,000 images
    batch_size: int = Field(default=128, ge=2)  # of labelled images, and as many unlabelled ones
    latent: PositiveInt = 32
    width: PositiveInt = 128  # channels of the first convolution; fewer, and fewer steps, for a CPU
    beta: NonNegativeFloat = 1.0  # weight of the codes' divergence
    adversary: NonNegativeFloat = 1.0  # weight of the discriminator's verdict
    learning_rate: PositiveFloat = 5e-4
