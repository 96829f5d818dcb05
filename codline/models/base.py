"""Base class of models, which build networks with a body (images to features) and a head (features to logits)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from codline.core.errors import UserError
from codline.core.params import Section

RANDOM_INITIALIZERS = {
    Tensor.normal_,
    Tensor.uniform_,
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.kaiming_normal_,
    nn.init.kaiming_uniform_,
}


class Network(nn.Module):
    """Logits are `head(body(images))`. `stages` names submodules of the body whose outputs can be read out."""

    def __init__(self, body: nn.Module, head: nn.Module, stages: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.body, self.head, self.stages = body, head, stages

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits

    def forward_with_stages(self, images: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Outputs of the stages, features and logits, in one forward pass."""
        outputs: dict[str, Tensor] = {}
        hooks = [
            self.body.get_submodule(name).register_forward_hook(partial(record_output, outputs, name))
            for name in self.stages
        ]
        try:
            features = self.body(images)
        finally:
            for hook in hooks:
                hook.remove()
        return [outputs[name] for name in self.stages], features, self.head(features)


def record_output(outputs: dict[str, Tensor], name: str, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
    outputs[name] = output


def conv_bn_relu(
    inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, dilation: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d, nn.ReLU]:
    padding = dilation * (kernel // 2)
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


def projection_shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The 1x1 convolution around a residual block that changes the shape; None for an identity shortcut."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class SkipInitialization(TorchFunctionMode):
    """While active, random initialization does nothing: weights keep whatever was in memory."""

    def __torch_function__(
        self, function: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in RANDOM_INITIALIZERS:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


class ModelSpec(Section):
    task: ClassVar[Literal["classification", "segmentation"]] = "classification"  # segmentation: logits per pixel
    stride: ClassVar[int] = 1  # height and width of inputs: the dataset's own, or multiples of this

    name: str

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
    def build(self, classes: int, shape: tuple[int, ...]) -> Network: ...

    def load_pretrained(self, network: Network) -> None:
        """Overwrites weights with pretrained ones, in models that have them."""

    def seeded_network(self, classes: int, shape: tuple[int, ...], seed: int) -> Network:
        """Randomly initialized from the seed alone; leaves torch's global random state unchanged."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            # The memory format of the images (see Normalize): otherwise convolutions convert the weights in every step.
            return self.build(classes, shape).to(memory_format=torch.channels_last)

    def uninitialized_network(self, classes: int, shape: tuple[int, ...]) -> Network:
        """For loading weights from a file: initializing eleven million weights first would take 0.1 s."""
        with SkipInitialization():
            return self.seeded_network(classes, shape, seed=0)

    def initial_network(self, classes: int, shape: tuple[int, ...], seed: int) -> Network:
        """The network before training: randomly initialized, then with pretrained weights if the model has them."""
        network = self.seeded_network(classes, shape, seed)
        self.load_pretrained(network)
        return network


class LossPredictor(nn.Module):
    """Predicts a network's loss for an image from the outputs of its stages (Yoo and Kweon, 2019).

    One linear layer per stage on its outputs, averaged over the pixels; a last layer turns them into one number.
    """

    def __init__(self, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(each, width) for each in channels)
        self.last = nn.Linear(len(channels) * width, 1)

    def forward(self, stages: Sequence[Tensor]) -> Tensor:
        """(N,) predicted losses. Only their order is meaningful, not their scale."""
        pooled = [stage.flatten(2).mean(2) if stage.ndim > 2 else stage for stage in stages]
        hidden = [functional.relu(branch(each)) for branch, each in zip(self.branches, pooled, strict=True)]
        predicted: Tensor = self.last(torch.cat(hidden, 1))[:, 0]
        return predicted


def predictor_from_tensors(tensors: Mapping[str, Tensor]) -> LossPredictor:
    """The trained predictor; its layer sizes follow from the tensors' shapes."""
    count = sum(key.startswith("branches.") for key in tensors) // 2  # each has a weight and a bias
    weights = [tensors[f"branches.{i}.weight"] for i in range(count)]
    predictor = LossPredictor([weight.shape[1] for weight in weights], weights[0].shape[0])
    predictor.load_state_dict(dict(tensors))
    return predictor.eval()
