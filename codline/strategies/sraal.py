"""SRAAL (Zhang et al., 2020): VAAL whose discriminator learns the model's uncertainty of each unlabeled image."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import AdversarialLearner, sort_pool


class Sraal(AdversarialLearner):
    """Zhang, Li, Yang, Wang, Zha, Huang: State-Relabeling Adversarial Active Learning (CVPR 2020)."""

    dense: ClassVar[bool] = False  # the codes are trained to predict one class per image
    name: Literal["sraal"] = "sraal"
    steps: PositiveInt = 20_000
    batch_size: int = Field(default=250, ge=2)
    latent: int = Field(default=200, ge=2, multiple_of=2)  # half is decoded, half predicts the class
    reconstruction: PositiveFloat = 5.0
    classification: NonNegativeFloat = 5.0
    decay: float = Field(default=0.85, gt=0, le=1)  # of the learning rate, applied thirty times

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import AdversarialSettings, AdversarialTrainer, ImageGroup  # imports torch

        pool = sort_pool(pool)
        probs_NC, labeled_ids = pool.outputs.probs_NC, pool.labeled.ids
        labeled = ImageGroup(labeled_ids, np.zeros(len(labeled_ids)), pool.labeled.labels)
        unlabeled = ImageGroup(pool.ids, online_uncertainty(probs_NC))
        settings = AdversarialSettings(**self.model_dump(exclude={"name"}), layers=4)
        trainer = AdversarialTrainer(settings, labeled, unlabeled, pool.context, classes=probs_NC.shape[1])
        return pool.ids[np.argsort(-trainer.fit_predict(), kind="stable")[:budget]]


def online_uncertainty(probs_NC: np.ndarray) -> np.ndarray:
    """The paper's online uncertainty indicator: 0 if the model is certain, 1 if all classes are equally probable.

    It is 1 - m W / V, with m the largest probability, V the variance of the probabilities and W the smallest variance
    that probabilities with this maximum can have.
    """
    classes, largest = probs_NC.shape[1], probs_NC.max(axis=1)
    rest = (1 - largest) / max(1, classes - 1)
    smallest_variance = ((1 / classes - largest) ** 2 + (classes - 1) * (1 / classes - rest) ** 2) / classes
    variance = probs_NC.var(axis=1)
    ratio = np.divide(smallest_variance, variance, out=np.zeros(len(variance)), where=variance > 1e-24)
    uncertainty: np.ndarray = 1 - largest * np.minimum(ratio, 1)
    return uncertainty
