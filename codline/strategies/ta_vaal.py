"""TA-VAAL (Kim et al., 2021): VAAL whose decoder and discriminator also see the predicted loss of an image."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from codline.strategies.base import PoolFeatures
from codline.strategies.learner_base import AdversarialLearner, sort_pool


class TaVaal(AdversarialLearner):
    """Kim, Park, Kim, Chun: Task-Aware Variational Adversarial Active Learning (CVPR 2021).

    The paper's ranker is `train.objectives: [{name: ll4al, ranking: logistic}]`.
    """

    uses_predicted_losses: ClassVar[bool] = True
    name: Literal["ta_vaal"] = "ta_vaal"
    steps: PositiveInt = 8_593  # as in the released code's first cycle: a hundred epochs of 11,000 images

    def select_query(self, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        from codline.acquisition.adversarial import AdversarialSettings, AdversarialTrainer, ImageGroup  # imports torch

        pool = sort_pool(pool)
        ids, labeled_ids = pool.ids, pool.labeled.ids
        assert pool.predicted_losses is not None
        assert pool.labeled.predicted_losses is not None
        labeled = ImageGroup(labeled_ids, np.ones(len(labeled_ids)), ranks=pool.labeled.predicted_losses)
        unlabeled = ImageGroup(ids, np.zeros(len(ids)), ranks=pool.predicted_losses)
        settings = AdversarialSettings(**self.model_dump(exclude={"name"}), encoder_steps=1)
        logits = AdversarialTrainer(settings, labeled, unlabeled, pool.context).fit_predict()
        return ids[np.argsort(logits, kind="stable")[:budget]]
