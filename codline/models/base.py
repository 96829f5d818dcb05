"""What every model is: a body that turns images into features and a head that turns features into logits."""

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from codline.core.errors import UserError
from codline.core.params import Section

DRAWS = {
    Tensor.normal_,
    Tensor.uniform_,
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.kaiming_normal_,
    nn.init.kaiming_uniform_,
}


class Network(nn.Module):
    """`head(body(images))` are logits; `stages` names the parts of the body whose outputs are of interest by themselves, in their order."""

    def __init__(self, body: nn.Module, head: nn.Module, stages: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.body, self.head, self.stages = body, head, stages

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits

    def staged(self, images: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """The stages' outputs, the features and the logits, in one pass."""
        found: dict[str, Tensor] = {}
        hooks = [
            self.body.get_submodule(name).register_forward_hook(partial(noted, found, name)) for name in self.stages
        ]
        try:
            features = self.body(images)
        finally:
            for hook in hooks:
                hook.remove()
        return [found[name] for name in self.stages], features, self.head(features)


def noted(found: dict[str, Tensor], name: str, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
    found[name] = output


class Undrawn(TorchFunctionMode):
    """Weights stay whatever was in memory."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if function in DRAWS:
            return arguments[0] if arguments else named["tensor"]
        return function(*arguments, **named)


class ModelSpec(Section):
    task: ClassVar[Literal["classification", "segmentation"]] = "classification"  # segmentation: logits for every pixel
    stride: ClassVar[int] = 1  # images, and crops in training, have the dataset's own sides or multiples of this

    name: str

    def suited(self, dataset: str, task: str) -> None:
        if self.task != task:
            raise UserError(
                f"params.yaml: prepare.model.name: found {self.name!r}, a model for {self.task}; {dataset} is for {task}"
            )

    def cuttable(self, size: int | None) -> None:
        """Into squares of this size, for training."""
        if size is not None and size % self.stride:
            raise UserError(
                f"params.yaml: train.augment.size: found {size}, expected a multiple of {self.stride} for {self.name}"
            )

    @abstractmethod
    def build(self, classes: int, shape: tuple[int, ...]) -> Network: ...

    def start(self, network: Network) -> None:
        """Weights from elsewhere, laid over the drawn ones, where a model has such."""

    def drawn(self, classes: int, shape: tuple[int, ...], seed: int) -> Network:
        """The network with weights of this seed alone; the global random stream is left as it was."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            # Weights lie in memory as the images do (see Normalize): convolutions would turn them around in every step.
            return self.build(classes, shape).to(memory_format=torch.channels_last)

    def hollow(self, classes: int, shape: tuple[int, ...]) -> Network:
        """The network for weights that are read from a file: to draw eleven million first would take a tenth of a second."""
        with Undrawn():
            return self.drawn(classes, shape, seed=0)

    def initial(self, classes: int, shape: tuple[int, ...], seed: int) -> Network:
        """The network before any training."""
        network = self.drawn(classes, shape, seed)
        self.start(network)
        return network
