"""Candidates: the images that a strategy chooses among which selects whole queries, of a pool that is larger."""

from typing import Literal

import numpy as np

from codline.acquisition import uncertainty
from codline.acquisition.discrepancy import discrepancy
from codline.core.params import Amount, Section
from codline.data.dense_outputs import mean_per_image
from codline.data.draws import hash_values


class Candidates(Section):
    """The `keep` images with the highest scores by a rule that needs no other image; ties go to the smaller id.

    random: a hash of the id, which depends on seed and cycle.
    margin, entropy, least_confidence: as the strategies of these names.
    cod: largest change of probabilities since the previous cycle; in the first cycle smallest distance to the untrained
        model, as the strategy does by default.
    """

    keep: Amount
    by: Literal["random", "margin", "entropy", "least_confidence", "cod"] = "random"

    def reference_models(self) -> frozenset[str]:
        return frozenset({"previous"}) if self.by == "cod" else frozenset()

    def scores(
        self, ids: np.ndarray, probs_NC: np.ndarray, previous_NC: np.ndarray | None, *, first_cycle: bool, key: int
    ) -> np.ndarray:
        """A score for each image, from its id and the probabilities of this cycle's and the previous cycle's model."""
        if self.by == "random":
            return hash_values(ids, key).astype(np.float64)
        if self.by == "cod":
            assert previous_NC is not None
            distances = discrepancy(probs_NC, previous_NC)
            return -distances if first_cycle else distances
        return mean_per_image(getattr(uncertainty, self.by)(probs_NC))
