"""VAAL (Sinha et al., 2019): images whose autoencoder codes a discriminator is most certain are unlabeled."""

from typing import Literal

import numpy as np

from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import AdversarialLearner, sort_pool


class Vaal(AdversarialLearner):
    """Sinha, Ebrahimi, Darrell: Variational Adversarial Active Learning (ICCV 2019)."""

    name: Literal["vaal"] = "vaal"

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import AdversarialSettings, AdversarialTrainer, ImageGroup  # imports torch

        pool = sort_pool(pool)
        labeled = ImageGroup(pool.labeled.ids, np.ones(len(pool.labeled.ids)))
        unlabeled = ImageGroup(pool.ids, np.zeros(len(pool.ids)))
        settings = AdversarialSettings(**self.model_dump(exclude={"name"}))
        logits = AdversarialTrainer(settings, labeled, unlabeled, pool.context).fit_predict()
        return pool.ids[np.argsort(logits, kind="stable")[:budget]]
