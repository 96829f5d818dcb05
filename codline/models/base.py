"""Base class of models, which are parameters that build a network. Modules here import torch only when they build one.

So params.yaml is checked without torch, which takes seconds to import.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from codline.core.errors import UserError
from codline.core.params import Section

if TYPE_CHECKING:
    from codline.models.networks.network import Network


class ModelSpec(Section):
    task: ClassVar[Literal["classification", "segmentation"]] = "classification"  # segmentation: logits per pixel
    stride: ClassVar[int] = 1  # height and width of inputs: the dataset's own, or multiples of this

    name: str
    # Rate of a dropout layer before the head, active in training and in the passes of mc_dropout and bald; 0: no layer.
    dropout: float = Field(default=0, ge=0, lt=1)

    def check_task(self, dataset: str, task: str) -> None:
        if self.task != task:
            raise UserError(
                f"params.yaml: prepare.model.name: found {self.name!r}, a model for {self.task}; "
                f"{dataset} is for {task}"
            )

    def check_crop_size(self, size: int | None) -> None:
        if size is not None and size % self.stride:
            raise UserError(
                f"params.yaml: train.augment.size: found {size}, expected a multiple of {self.stride} for {self.name}"
            )

    @abstractmethod
    def build(self, classes: int, shape: tuple[int, ...]) -> "Network": ...

    def load_pretrained(self, network: "Network") -> None:
        """Overwrites weights with pretrained ones, in models that have them."""

    def seeded_network(self, classes: int, shape: tuple[int, ...], seed: int) -> "Network":
        """Randomly initialized from the seed alone; leaves torch's global random state unchanged."""
        import torch
        from torch import nn

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = self.build(classes, shape)
        if self.dropout:
            layer = nn.Dropout if self.task == "classification" else nn.Dropout2d  # of dense features whole channels
            network.head = nn.Sequential(layer(self.dropout), network.head)
        # The memory format of the images (see Normalize): otherwise convolutions convert the weights in every step.
        return network.to(memory_format=torch.channels_last)

    def uninitialized_network(self, classes: int, shape: tuple[int, ...]) -> "Network":
        """For loading weights from a file: initializing eleven million weights first would take 0.1 s."""
        from codline.models.networks.network import SkipInitialization

        with SkipInitialization():
            return self.seeded_network(classes, shape, seed=0)

    def initial_network(self, classes: int, shape: tuple[int, ...], seed: int) -> "Network":
        """The network before training: randomly initialized, then with pretrained weights if the model has them."""
        network = self.seeded_network(classes, shape, seed)
        self.load_pretrained(network)
        return network
