"""What is added to the task loss, from images without labels."""

import torch
from torch import Tensor, nn

from codline.params import Section


class Objective(Section):
    def companion(self, network: nn.Module) -> "Companion | None":
        """The second network that training has to keep beside the first, if any."""
        return None

    def loss(self, logits: Tensor, companion_logits: Tensor) -> Tensor:
        raise NotImplementedError


class Companion(nn.Module):
    """A network that follows the trained one; never trained itself."""

    def update(self, network: nn.Module) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        raise NotImplementedError
