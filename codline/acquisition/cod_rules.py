"""Parameters of cyclic output discrepancy (COD), and the rule for the first cycle, for the strategies built on it."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from codline.acquisition.discrepancy import discrepancy
from codline.core.params import Section


class CodRules(Section):
    """The first cycle has no previous model to compare with. There, `first_cycle` decides:

    largest: largest discrepancy to the untrained model, as the paper says. The untrained model's outputs are nearly
        uniform, so these are the images that the model is most confident about.
    smallest: smallest discrepancy to the untrained model: the least confident images.
    independent: smallest discrepancy to another untrained network, as in the authors' code.
    snapshot: largest discrepancy to this model `steps` steps before the end of its training (in train.snapshots).
    uniform: smallest distance to the uniform distribution, which needs no other model. Like `smallest` if the untrained
        outputs are nearly uniform; those of resnet18_224 and drn_d_22 are not (docs/method.md).
    random: random scores.
    """

    name: str
    outputs: Literal["probs", "logits"] = "probs"
    first_cycle: Literal["largest", "smallest", "independent", "snapshot", "uniform", "random"] = "smallest"
    steps: PositiveInt = 100

    def reference_models(self, first_cycle: bool) -> frozenset[str | int]:
        reference = self.reference_model(first_cycle)
        return frozenset() if reference is None else frozenset({reference})

    def reference_model(self, first_cycle: bool) -> str | int | None:
        """The model whose outputs are compared with this cycle's; None if the rule needs none."""
        if not first_cycle:
            return "previous"
        if self.first_cycle in ("uniform", "random"):
            return None
        others: dict[str, str | int] = {"independent": "independent", "snapshot": self.steps}
        return others.get(self.first_cycle, "previous")

    def cod_scores(
        self, now: np.ndarray, before: np.ndarray | None, first_cycle: bool, rng: np.random.Generator
    ) -> np.ndarray:
        """A score per image, from the outputs of this cycle's model and, if there is one, of the reference model."""
        rule = self.first_cycle if first_cycle else None
        if rule == "random":
            return rng.random(len(now))
        if before is None:  # rule `uniform`: classes are equally probable if each output equals the mean over them
            before = now.mean(axis=1, keepdims=True)
        discrepancies = discrepancy(now, before)
        return -discrepancies if rule in ("smallest", "independent", "uniform") else discrepancies
