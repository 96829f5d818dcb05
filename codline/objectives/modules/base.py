"""Base class of the modules that an objective trains with."""

from collections.abc import Iterable

from torch import Tensor, nn

from codline.models.networks.batch_parts import BatchDraws
from codline.models.networks.network import Network
from codline.objectives.base import TrainingBatch


class AuxiliaryModule(nn.Module):
    """Networks that an objective keeps next to the trained one, and the loss it computes with them."""

    has_loss = True  # False: kept only for scoring
    uses_stages = False  # True: the loss is computed from the stages' outputs and the losses of labeled images
    uses_unlabeled = True  # False: the loss is computed from labeled images alone

    def trainable_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters for the optimizer, in addition to the network's."""
        return ()

    def start_step(self, progress: float) -> None:
        """Called before every step, with the completed fraction of the training."""

    def unlabeled_view(self, images: Tensor, draws: BatchDraws) -> Tensor | None:
        """Another view of the augmented, unlabeled uint8 images, if the loss needs the network's outputs for one."""
        return None

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        """A mean over images, times the batch's `image_weight`, or over pairs, times its `pair_weight`.

        With `uses_unlabeled` False, `unlabeled` may be the labeled batch again.
        """
        raise NotImplementedError

    def update(self, network: Network) -> None:
        """Called after every step."""
