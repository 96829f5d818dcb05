"""Learning loss (Yoo and Kweon, 2019): an auxiliary module learns which of two labeled images has the larger loss."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from codline.objectives.base import Objective, TrainingContext

if TYPE_CHECKING:
    from torch import Tensor

    from codline.models.networks.network import Network
    from codline.objectives.modules.loss_prediction import LossPrediction


class Ll4alObjective(Objective):
    """Yoo, Kweon: Learning Loss for Active Learning (CVPR 2019).

    The defaults are those of the usual reimplementation; docs/strategies.md lists the differences.
    """

    name: Literal["ll4al"] = "ll4al"
    weight: PositiveFloat = 1.0
    ranking: Literal["hinge", "logistic"] = "hinge"  # logistic: the ranker of TA-VAAL (Kim et al., 2021)
    margin: PositiveFloat = 1.0  # of the hinge
    width: PositiveInt = 128  # units for each stage of the network
    # Fraction of the steps after which this loss no longer trains the network itself.
    detach_at: float = Field(default=0.6, ge=0, le=1)
    # Whether the module continues from the previous cycle's, as the weights do; not for train.start_from: fresh.
    persists: bool = True

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "LossPrediction":
        from codline.objectives.modules.loss_prediction import LossPrediction

        auxiliary = LossPrediction(network, self, context)
        if self.persists and self.name in context.previous_auxiliary:
            auxiliary.load_state_dict(dict(context.previous_auxiliary[self.name]))
        return auxiliary

    def ranking_loss(self, predicted: "Tensor", losses: "Tensor") -> "Tensor":
        """Mean over pairs: the first image with the last, the second with the last but one, and so on.

        With an odd number of images, the last one is left out.
        """
        from torch.nn import functional

        count = len(predicted) // 2
        predicted, losses = predicted[: 2 * count], losses[: 2 * count].detach()
        predicted_difference, difference = ((values - values.flip(0))[:count] for values in (predicted, losses))
        if self.ranking == "hinge":
            total = (self.margin - difference.sign() * predicted_difference).clamp(min=0).sum()
        else:
            is_larger = (difference > 0).float()
            total = functional.binary_cross_entropy_with_logits(predicted_difference, is_larger, reduction="sum")
        return total / max(1, count)
