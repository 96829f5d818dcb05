"""Networks with a body (images to features) and a head (features to logits)."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


class SkipInitialization(TorchFunctionMode):
    """While active, random initialization does nothing: weights keep whatever was in memory."""

    def __torch_function__(
        self, function: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in RANDOM_INITIALIZERS:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
