"""What every model is: a body that turns images into features and a head that turns features into logits."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from codline.params import Section


class Network(nn.Module):
    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits


class ModelSpec(Section):
    @abstractmethod
    def build(self, classes: int, shape: tuple[int, ...]) -> Network: ...

    def initial(self, classes: int, shape: tuple[int, ...], seed: int) -> Network:
        """The untrained network of this seed; the global random stream is left as it was."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            # Weights lie in memory as the images do (see Normalize): convolutions would turn them around in every step.
            return self.build(classes, shape).to(memory_format=torch.channels_last)
