"""The loss of the objective fixmatch."""

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from codline.models.networks.batch_parts import BatchDraws
from codline.objectives.base import TrainingBatch
from codline.objectives.modules.base import AuxiliaryModule
from codline.objectives.modules.strong_augmentation import augment_strongly

if TYPE_CHECKING:
    from codline.objectives.fixmatch import FixmatchObjective


class PseudoLabels(AuxiliaryModule):
    def __init__(self, objective: "FixmatchObjective") -> None:
        super().__init__()
        self.objective = objective

    def unlabeled_view(self, images: Tensor, draws: BatchDraws) -> Tensor:
        return augment_strongly(images, self.objective.strength, draws)

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        """Mean over all unlabeled images; those whose prediction is not confident count as 0."""
        assert unlabeled.view_logits is not None
        confidences, pseudo_labels = unlabeled.logits.detach().softmax(1).max(1)
        losses = functional.cross_entropy(unlabeled.view_logits, pseudo_labels, reduction="none")
        weight = self.objective.weight * unlabeled.image_weight
        return weight * (losses * (confidences >= self.objective.threshold)).mean()
