"""Base classes of the objectives: what training adds to the task loss, mostly from unlabeled images.

Objectives are parameters; like models, they import torch only when training starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveInt

from codline.core.errors import UserError
from codline.core.params import Section
from codline.core.params_errors import plugin_name

if TYPE_CHECKING:
    from torch import Tensor

    from codline.models.networks.network import Network
    from codline.objectives.modules.base import AuxiliaryModule


@dataclass(frozen=True)
class TrainingBatch:
    """Images of one training step, with the outputs of the network that is being trained."""

    images: "Tensor"
    features: "Tensor"
    logits: "Tensor"
    # Only for auxiliary modules with `uses_stages`:
    stages: "list[Tensor]" = field(default_factory=list)  # outputs of the network's stages
    losses: "Tensor | None" = None  # task loss of each image
    # Only for auxiliary modules with an `unlabeled_view`: the network's outputs for it.
    view_logits: "Tensor | None" = None
    # Not 1 if several processes share the step: see codline/models/networks/batch_parts.py.
    image_weight: float = 1.0
    pair_weight: float = 1.0


@dataclass(frozen=True)
class TrainingContext:
    """What an objective may use in addition to the network and its batches."""

    image_shape: tuple[int, ...]
    previous_network: "Network | None" = None  # the previous cycle's model; None in the first cycle
    make_independent: "Callable[[], Network] | None" = None  # untrained, with other weights than the first model
    # States of last cycle's auxiliary modules, by the name of their objective.
    previous_auxiliary: "Mapping[str, Mapping[str, Tensor]]" = field(default_factory=dict)
    steps: int = 1  # of this training; set by fit()


class Objective(Section):
    dense: ClassVar[bool] = True  # whether it is defined for segmentation

    def check_task(self, task: str) -> None:
        if task == "segmentation" and not self.dense:
            found = f"found {plugin_name(type(self))!r}, which is not defined for segmentation"
            raise UserError(f"params.yaml: train.objectives: {found}")

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "AuxiliaryModule | None":
        """None if there is nothing to add to the task loss in this cycle."""
        raise NotImplementedError

    def unlabeled_batch_size(self, labeled_batch_size: int) -> int | None:
        """Number of unlabeled images per step; None if the loss is computed without them."""
        return None

    def repeats_first_batch(self) -> bool:
        """Whether the first cycle uses the same unlabeled images in every step."""
        return False


class DiscrepancyObjective(Objective):
    """Squared discrepancy between the outputs of the trained network and those of another one."""

    weight: float = Field(default=0.05, ge=0)
    outputs: Literal["probs", "logits"] = "probs"
    reduce: Literal["sum", "mean"] = "sum"  # over the classes; the paper's norm is a sum
    batch_size: PositiveInt | None = None  # unlabeled images per step; default: as many as labeled ones

    def unlabeled_batch_size(self, labeled_batch_size: int) -> int | None:
        return (self.batch_size or labeled_batch_size) if self.weight > 0 else None

    def distance(self, ours: "Tensor", theirs: "Tensor") -> "Tensor":
        """Discrepancy of two batches of logits, not weighted. Gradients flow into both unless one is detached."""
        from torch.nn import functional

        if self.outputs == "probs":
            ours, theirs = ours.softmax(1), theirs.softmax(1)
        squares = functional.mse_loss(ours, theirs, reduction="none")
        return squares.sum(1).mean() if self.reduce == "sum" else squares.mean()
