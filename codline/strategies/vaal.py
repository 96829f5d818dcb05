"""VAAL (Sinha et al., 2019): images whose codes a discriminator is surest not to find among the labelled ones'."""

from typing import Literal

import numpy as np

from codline.strategies.base import Whole
from codline.strategies.learner_base import AdversarialLearner, ordered


class Vaal(AdversarialLearner):
    """Sinha, Ebrahimi, Darrell: Variational Adversarial Active Learning (ICCV 2019). docs/strategies.md says what differs."""

    name: Literal["vaal"] = "vaal"

    def choose(self, pool: Whole, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import Game, Settings, Side  # and torch

        pool = ordered(pool)
        ids, known = pool.ids, pool.known.ids
        settings = Settings(
            self.steps, self.batch_size, self.latent, self.width, self.beta, self.adversary, self.learning_rate
        )
        states = Game(settings, Side(known, np.ones(len(known))), Side(ids, np.zeros(len(ids))), pool.bench).play()
        return ids[np.argsort(states, kind="stable")[:budget]]
