"""A GPU for machines without one: torch's `meta` device, whose tensors have shapes and types but no values.

Code runs on it as on a GPU, without the arithmetic. Operations on tensors of two devices are refused, and everything
for which the host would wait for a real GPU is recorded, with the line that asked for it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from tests.workspace import REPOSITORY

DEVICE = torch.device("meta")
aten = torch.ops.aten
NEEDS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
FROM_VALUES = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
TO_HOST, FROM_HOST = "copy to the host", "copy from the host"


class SimulatedGpu:
    """Context in which the device can be used. `waits` has an entry "reason at file:line" for each wait of the host."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.pinned = WeakIdKeyDictionary()  # host tensors from which a copy does not make the host wait
        self.generator = torch.Generator().manual_seed(0)
        self.modes = (Operations(self), Constructors(self))

    def __enter__(self) -> Self:
        for mode in self.modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)

    def wait(self, reason: str) -> None:
        self.waits.append(f"{reason} at {caller()}")

    def host_values(self, tensor: Tensor) -> Tensor:
        """What a copy to the host returns: random numbers, since the device has none."""
        values = torch.rand(tensor.shape, generator=self.generator, dtype=torch.float64)
        return values.to(tensor.dtype)


class Constructors(TorchFunctionMode):
    """torch.tensor(values, device=...) copies from the host. No operation shows it on the meta device."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in FROM_VALUES and is_on_device(result) and not is_on_device(args[0]):
            self.gpu.wait(FROM_HOST)
        return result


class Operations(TorchDispatchMode):
    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        gpu, kwargs = self.gpu, kwargs or {}
        if operation._can_decompose():  # in inference mode, operations arrive that consist of others
            with self:
                return operation.decompose(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if operation in (aten._to_copy.default, aten.copy_.default):
            return self.copy(operation, args, kwargs)
        if operation is aten._pin_memory.default:
            pinned = args[0].clone()
            gpu.pinned[pinned] = True
            return pinned
        if not any(map(is_on_device, tensors)):
            return operation(*args, **kwargs)
        refuse_mixed_devices(operation, tensors)
        if operation is aten._local_scalar_dense.default:
            gpu.wait("value read")
            return gpu.host_values(args[0]).item()
        if needs_values(operation, args):
            raise AssertionError(f"{operation} makes the host wait for the shape of its result at {caller()}")
        return operation(*args, **kwargs)

    def copy(self, operation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        source = args[-1] if operation is aten._to_copy.default else args[1]
        target = kwargs.get("device", source.device) if operation is aten._to_copy.default else args[0].device
        if is_on_device(source) and target != DEVICE:
            self.gpu.wait(TO_HOST)
            values = self.gpu.host_values(source)
            return values if operation is aten._to_copy.default else args[0].copy_(values)
        is_asynchronous = kwargs.get("non_blocking", len(args) > 2 and args[2]) and source in self.gpu.pinned
        if not is_on_device(source) and target == DEVICE and not is_asynchronous:
            self.gpu.wait(FROM_HOST)
        return operation(*args, **kwargs)


def is_on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device == DEVICE


def refuse_mixed_devices(operation: Any, tensors: Sequence[Tensor]) -> None:
    """A single number on the host may be combined with tensors on the device."""
    if any(not is_on_device(tensor) and tensor.ndim for tensor in tensors):
        raise AssertionError(f"{operation} has tensors of two devices at {caller()}")


def needs_values(operation: Any, args: Sequence[Any]) -> bool:
    """Whether the shape of the result depends on values: for indexing, where an index is a mask."""
    if operation in INDEXING:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return any(tag in operation.tags for tag in NEEDS_VALUES)


def caller() -> str:
    """The line of our code that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.removeprefix(f'{REPOSITORY}/')}:{frame.f_lineno}"


def is_ours(file: str) -> bool:
    return file.startswith(f"{REPOSITORY}/") and "/.venv/" not in file and file != __file__
