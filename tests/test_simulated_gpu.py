"""The simulated GPU of the contract tests notices what would make a host wait for a GPU, or fail on one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from codline.models.networks.transfer import to_device
from tests.simulated_gpu import DEVICE, FROM_HOST, TO_HOST, SimulatedGpu

WAITING: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda values: values.sum().item(), "value read"),
    "float": (lambda values: float(values.sum()), "value read"),
    "bool": (lambda values: bool(values.sum() > 0), "value read"),
    "if": (lambda values: 1 if values.amax() else 2, "value read"),
    "tolist": (lambda values: values.tolist(), TO_HOST),
    "cpu": (lambda values: values.cpu(), TO_HOST),
    "to": (lambda values: values.to("cpu", non_blocking=True), TO_HOST),
    "copy_ to the host": (lambda values: torch.zeros(4).copy_(values), TO_HOST),
    "to the device": (lambda _: torch.zeros(4).to(DEVICE), FROM_HOST),
    "to the device from pageable memory": (lambda _: torch.zeros(4).to(DEVICE, non_blocking=True), FROM_HOST),
    "copy_ to the device": (lambda values: values.copy_(torch.zeros(4)), FROM_HOST),
    "torch.tensor": (lambda _: torch.tensor([1.0, 2.0], device=DEVICE), FROM_HOST),
}
REFUSED: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "nonzero": (lambda values: values.nonzero(), "wait for the shape"),
    "mask as an index": (lambda values: values[values > 0], "wait for the shape"),
    "assignment through a mask": (lambda values: values.index_put_((values > 0,), values[0]), "wait for the shape"),
    "unique": (lambda values: values.unique(), "wait for the shape"),
    "sum of two devices": (lambda values: values + torch.zeros(4), "two devices"),
    "product of two devices": (lambda values: values[None] @ torch.zeros(4, 2), "two devices"),
    "concatenation of two devices": (lambda values: torch.cat([values, torch.zeros(4)]), "two devices"),
    "index on the host": (lambda values: values[torch.arange(2)], "two devices"),
}
FREE: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda values: (values * 2 + 1).softmax(0).sum(),
    "number on the host": lambda values: values * torch.ones(()),
    "index on the device": lambda values: values[torch.arange(2, device=DEVICE)],
    "host alone": lambda _: float(torch.ones(4)[torch.ones(4) > 0].sum()),
    "to_device": lambda values: values + to_device(torch.from_numpy(np.zeros(4, np.float32)), DEVICE),
    "new tensor": lambda values: torch.zeros(4, device=DEVICE) + torch.full_like(values, 3.0),
    "where": lambda values: torch.where(values > 0, values, 0),
}


each_mode = pytest.mark.parametrize("inference", [True, False], ids=["inference", "training"])


@each_mode
@pytest.mark.parametrize("name", WAITING)
def test_simulated_gpu_records_each_wait_of_the_host_with_its_line(name: str, inference: bool) -> None:
    function, reason = WAITING[name]
    with torch.inference_mode(inference), SimulatedGpu() as gpu:
        values = torch.zeros(4, device=DEVICE)
        assert gpu.waits == []
        function(values)
    (wait,) = gpu.waits
    assert wait.startswith(f"{reason} at tests/test_simulated_gpu.py:")


@each_mode
@pytest.mark.parametrize("name", REFUSED)
def test_simulated_gpu_refuses_shapes_that_depend_on_values_and_mixed_devices(name: str, inference: bool) -> None:
    function, sentence = REFUSED[name]
    with (
        torch.inference_mode(inference),
        SimulatedGpu(),
        pytest.raises(AssertionError, match=f"{sentence}.* at tests/test_simulated_gpu.py:"),
    ):
        function(torch.zeros(4, device=DEVICE))


@each_mode
@pytest.mark.parametrize("name", FREE)
def test_simulated_gpu_records_nothing_where_the_host_does_not_wait(name: str, inference: bool) -> None:
    with torch.inference_mode(inference), SimulatedGpu() as gpu:
        FREE[name](torch.zeros(4, device=DEVICE))
    assert gpu.waits == []


def test_simulated_gpu_notices_a_wait_in_a_backward_pass() -> None:
    class Reading(torch.autograd.Function):
        @staticmethod
        def forward(_: object, values: Tensor) -> Tensor:
            return values.clone()

        @staticmethod
        def backward(_: object, gradient: Tensor) -> Tensor:
            return gradient * gradient.sum().item()

    with SimulatedGpu() as gpu:
        values = torch.zeros(4, device=DEVICE, requires_grad=True)
        Reading.apply(values).sum().backward()
    assert len(gpu.waits) == 1
