"""FixMatch (Sohn et al., 2020): confident predictions are the labels of strongly augmented views of the same images."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from codline.objectives.base import Objective, TrainingContext

if TYPE_CHECKING:
    from codline.models.networks.network import Network
    from codline.objectives.modules.pseudo_labels import PseudoLabels


class FixmatchObjective(Objective):
    """Sohn et al.: FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence (NeurIPS 2020).

    The weakly augmented view is that of train.augment. Costs two more passes over the unlabeled images of a step, one
    of them backwards, too.
    """

    name: Literal["fixmatch"] = "fixmatch"
    dense: ClassVar[bool] = False
    weight: PositiveFloat = 1.0
    threshold: float = Field(default=0.95, ge=0, le=1)  # predictions with a smaller probability are not used
    strength: float = Field(default=1.0, gt=0, le=1)  # of the strong augmentation: scales its magnitudes
    batch_size: PositiveInt | None = (
        None  # unlabeled images per step; default: as many as labeled ones (paper: 7 times)
    )

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "PseudoLabels":
        from codline.objectives.modules.pseudo_labels import PseudoLabels

        return PseudoLabels(self)

    def unlabeled_batch_size(self, labeled_batch_size: int) -> int | None:
        return self.batch_size or labeled_batch_size
