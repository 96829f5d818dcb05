"""What is added to the task loss, mostly from images without labels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from codline.core.params import Section
from codline.models.base import Network


@dataclass(frozen=True)
class Batch:
    """Images of one step, and what the trained network says of them."""

    images: Tensor
    features: Tensor
    logits: Tensor
    stages: list[Tensor] = field(default_factory=list)  # what the network's stages say, where the companion asks for it
    losses: Tensor | None = None  # the task loss of each image, likewise


@dataclass(frozen=True)
class Beside:
    """What a training may be compared with, besides itself."""

    previous: Network | None = None  # the last cycle's model; none in the first cycle
    independent: Callable[[], Network] | None = None  # another untrained network
    kept: Mapping[str, Tensor] = field(default_factory=dict)  # what the companion of the last cycle left
    shape: Callable[[], tuple[int, ...]] = lambda: ()  # of an image: it takes a look at one


class Companion(nn.Module):
    """What an objective keeps beside the network through a training."""

    active = True  # whether there is a loss at all: an average can be kept for its own sake
    staged = False  # whether it looks at labelled images alone, at what the stages say of them and at their losses

    def trained(self) -> Iterable[nn.Parameter]:
        """Parameters of its own that the optimizer moves, if any."""
        return ()

    def begin(self, share: float) -> None:
        """Called before every step, with the share of the training that is done."""

    def loss(self, labeled: Batch, unlabeled: Batch) -> Tensor:
        raise NotImplementedError

    def update(self, network: Network) -> None:
        """Called after every step."""


class Objective(Section):
    def companion(self, network: Network, beside: Beside) -> Companion | None:
        """None where there is nothing to add to the task loss."""
        return None

    def unlabeled_batch(self, labeled: int) -> int:
        """Images without labels in a step, beside so many with."""
        return labeled

    def repeats_first_batch(self) -> bool:
        """Whether the first cycle feeds the same unlabelled images in every step."""
        return False


class Discrepant(Objective):
    """Squared output discrepancy to another network."""

    weight: float = Field(default=0.05, ge=0)
    outputs: Literal["probs", "logits"] = "probs"
    reduce: Literal["sum", "mean"] = "sum"  # over the classes; the paper's norm is a sum
    batch_size: PositiveInt | None = None  # unlabelled images in a step; as many as labelled ones if left out

    def unlabeled_batch(self, labeled: int) -> int:
        return self.batch_size or labeled

    def distance(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """Without the weight. Gradients flow into both, unless one is detached."""
        if self.outputs == "probs":
            ours, theirs = ours.softmax(1), theirs.softmax(1)
        squares = functional.mse_loss(ours, theirs, reduction="none")
        return squares.sum(1).mean() if self.reduce == "sum" else squares.mean()
