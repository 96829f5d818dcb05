"""Base classes of the objectives: what training adds to the task loss, mostly from unlabeled images."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.core.params import Section
from codline.models.base import Network


@dataclass(frozen=True)
class TrainingBatch:
    """Images of one training step, with the outputs of the network that is being trained."""

    images: Tensor
    features: Tensor
    logits: Tensor
    # Only for auxiliary modules with `uses_stages`:
    stages: list[Tensor] = field(default_factory=list)  # outputs of the network's stages
    losses: Tensor | None = None  # task loss of each image


@dataclass(frozen=True)
class TrainingContext:
    """What an objective may use in addition to the network and its batches."""

    image_shape: tuple[int, ...]
    previous_network: Network | None = None  # the previous cycle's model; None in the first cycle
    make_independent: Callable[[], Network] | None = None  # untrained, with other weights than the first model
    previous_auxiliary: Mapping[str, Tensor] = field(default_factory=dict)  # state of last cycle's auxiliary module


class AuxiliaryModule(nn.Module):
    """Networks that an objective keeps next to the trained one, and the loss it computes with them."""

    has_loss = True  # False: kept only for scoring
    uses_stages = False  # True: the loss is computed from the stages' outputs and losses of labeled images alone

    def trainable_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters for the optimizer, in addition to the network's."""
        return ()

    def start_step(self, progress: float) -> None:
        """Called before every step, with the completed fraction of the training."""

    def loss(self, labeled: TrainingBatch, unlabeled: TrainingBatch) -> Tensor:
        raise NotImplementedError

    def update(self, network: Network) -> None:
        """Called after every step."""


class Objective(Section):
    def make_auxiliary(self, network: Network, context: TrainingContext) -> AuxiliaryModule | None:
        """None if there is nothing to add to the task loss."""
        return None

    def unlabeled_batch_size(self, labeled_batch_size: int) -> int:
        return labeled_batch_size

    def repeats_first_batch(self) -> bool:
        """Whether the first cycle uses the same unlabeled images in every step."""
        return False


class DiscrepancyObjective(Objective):
    """Squared discrepancy between the outputs of the trained network and those of another one."""

    weight: float = Field(default=0.05, ge=0)
    outputs: Literal["probs", "logits"] = "probs"
    reduce: Literal["sum", "mean"] = "sum"  # over the classes; the paper's norm is a sum
    batch_size: PositiveInt | None = None  # unlabeled images per step; default: as many as labeled ones

    def unlabeled_batch_size(self, labeled_batch_size: int) -> int:
        return self.batch_size or labeled_batch_size

    def distance(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """Discrepancy of two batches of logits, not weighted. Gradients flow into both unless one is detached."""
        if self.outputs == "probs":
            ours, theirs = ours.softmax(1), theirs.softmax(1)
        squares = functional.mse_loss(ours, theirs, reduction="none")
        return squares.sum(1).mean() if self.reduce == "sum" else squares.mean()
