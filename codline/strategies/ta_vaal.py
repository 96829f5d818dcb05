"""TA-VAAL (Kim et al., 2021): VAAL whose decoder and discriminator are told the loss that is foretold of an image, too."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from codline.strategies.base import Whole
from codline.strategies.learner_base import AdversarialLearner, ordered


class TaVaal(AdversarialLearner):
    """Kim, Park, Kim, Chun: Task-Aware Variational Adversarial Active Learning (CVPR 2021). docs/strategies.md says what differs.

    The paper's ranker is `train.objective: {name: ll4al, ranking: logistic}`.
    """

    predicted: ClassVar[bool] = True
    name: Literal["ta_vaal"] = "ta_vaal"
    steps: PositiveInt = 8_593  # the released code's in the first cycle: a hundred epochs of 11,000 images

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import Game, Settings, Side  # and torch

        pool = ordered(pool)
        ids, known = pool.ids, pool.known
        assert pool.predicted is not None
        assert known.predicted is not None
        told = (self.beta, self.adversary, self.learning_rate)
        settings = Settings(self.steps, self.batch_size, self.latent, self.width, *told, encoder_steps=1)
        labeled = Side(known.ids, np.ones(len(known.ids)), ranks=known.predicted)
        states = Game(settings, labeled, Side(ids, np.zeros(len(ids)), ranks=pool.predicted), pool.bench).play()
        return ids[np.argsort(states, kind="stable")[:budget]]
