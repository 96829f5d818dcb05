"""Parameters of cyclic output discrepancy (COD), and the rule for the first cycle, for the strategies built on it."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.core.params import Section


class CodRules(Section):
    """The first cycle has no previous model to compare with. There, `first_cycle` decides:

    largest: largest discrepancy to the untrained model, as the paper says. The untrained model's outputs are nearly
        uniform, so these are the images that the model is most confident about.
    smallest: smallest discrepancy to the untrained model: the least confident images.
    independent: smallest discrepancy to another untrained network, as in the authors' code.
    snapshot: largest discrepancy to this model `steps` steps before the end of its training (in train.snapshots).
    random: random scores.
    """

    name: str
    outputs: Literal["probs", "logits"] = "probs"
    first_cycle: Literal["largest", "smallest", "independent", "snapshot", "random"] = "smallest"
    steps: PositiveInt = 100

    def reference_models(self, first_cycle: bool) -> frozenset[str | int]:
        reference = self.reference_model(first_cycle)
        return frozenset() if reference is None else frozenset({reference})

    def reference_model(self, first_cycle: bool) -> str | int | None:
        """The model whose outputs are compared with this cycle's; None means random scores."""
        if not first_cycle:
            return "previous"
        rules: dict[str, str | int | None] = {"independent": "independent", "snapshot": self.steps, "random": None}
        return rules.get(self.first_cycle, "previous")

    def score_discrepancies(self, discrepancies: np.ndarray, first_cycle: bool) -> np.ndarray:
        """Scores that rank images by the rule: the discrepancies, negated where the smallest come first."""
        return -discrepancies if first_cycle and self.first_cycle in ("smallest", "independent") else discrepancies
