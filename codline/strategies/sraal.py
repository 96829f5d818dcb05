"""SRAAL (Zhang et al., 2020): VAAL whose discriminator learns how uncertain the model is of an unlabelled image, instead of just that it is unlabelled."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from codline.strategies.base import Whole
from codline.strategies.learner_base import AdversarialLearner, ordered


class Sraal(AdversarialLearner):
    """Zhang, Li, Yang, Wang, Zha, Huang: State-Relabeling Adversarial Active Learning (CVPR 2020). docs/strategies.md says what differs."""

    dense: ClassVar[bool] = False  # the codes are to tell the class of an image
    name: Literal["sraal"] = "sraal"
    steps: PositiveInt = 20_000
    batch_size: int = Field(default=250, ge=2)
    latent: int = Field(default=200, ge=2, multiple_of=2)  # half of it tells the picture, half the class
    reconstruction: PositiveFloat = 5.0
    classification: NonNegativeFloat = 5.0
    decay: float = Field(default=0.85, gt=0, le=1)  # of the learning rate, thirty times

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import Game, Settings, Side  # and torch

        pool = ordered(pool)
        ids, known, probs_NC = pool.ids, pool.known, pool.outputs.probs_NC
        told = (self.beta, self.adversary, self.learning_rate, self.decay)
        settings = Settings(
            self.steps, self.batch_size, self.latent, self.width, *told, 4, 2, self.reconstruction, self.classification
        )
        labeled = Side(known.ids, np.zeros(len(known.ids)), known.labels)
        states = Game(settings, labeled, Side(ids, uncertainty(probs_NC)), pool.bench, probs_NC.shape[1]).play()
        return ids[np.argsort(-states, kind="stable")[:budget]]


def uncertainty(probs_NC: np.ndarray) -> np.ndarray:
    """The online uncertainty score: 0 of an image that the model is sure of, 1 where every class is as likely.

    With m the likeliest class's probability, V the variance and W the least that probabilities with this m can have, it is 1 - m W / V.
    """
    classes, most = probs_NC.shape[1], probs_NC.max(axis=1)
    rest = (1 - most) / max(1, classes - 1)
    least = ((1 / classes - most) ** 2 + (classes - 1) * (1 / classes - rest) ** 2) / classes
    spread = probs_NC.var(axis=1)
    share = np.divide(least, spread, out=np.zeros(len(spread)), where=spread > 1e-24)
    score: np.ndarray = 1 - most * np.minimum(share, 1)
    return score
