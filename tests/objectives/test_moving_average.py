"""MovingAverage computes what torch's AveragedModel does, and knows its number of updates after it is restored."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from codline.models.networks.network import Network
from codline.objectives.modules.moving_average import MovingAverage

DECAY = 0.8


def make_network(seed: int) -> Network:
    generator = torch.Generator().manual_seed(seed)
    network = Network(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)), nn.Linear(5, 2))
    for parameter in network.parameters():
        parameter.detach().normal_(generator=generator)
    network(torch.randn(6, 3, generator=generator))  # changes the batch-norm statistics
    return network


def reference_average(network: Network, *, warm_up: bool, averages_buffers: bool) -> AveragedModel:
    def update(averaged: list[Tensor], current: list[Tensor], steps: Tensor) -> None:
        weight = min(DECAY, 1 - 1 / (int(steps) + 1)) if warm_up else DECAY
        for mean, now in zip(averaged, current, strict=True):
            mean.copy_(torch.lerp(now, mean, weight) if mean.is_floating_point() else now)

    return AveragedModel(network, multi_avg_fn=update, use_buffers=averages_buffers)


def bits(module: nn.Module) -> Iterator[tuple[str, bytes]]:
    return ((name, value.numpy().tobytes()) for name, value in module.state_dict().items())


@pytest.mark.parametrize("warm_up", [True, False])
@pytest.mark.parametrize("averages_buffers", [True, False])
def test_moving_average_has_the_tensors_of_torchs_averaged_model_to_the_bit(
    warm_up: bool, averages_buffers: bool
) -> None:
    network = make_network(0)
    average = MovingAverage(network, DECAY, warm_up=warm_up, averages_buffers=averages_buffers)
    reference = reference_average(network, warm_up=warm_up, averages_buffers=averages_buffers)
    for seed in range(7):
        average.update(make_network(seed))
        reference.update_parameters(make_network(seed))
        assert [*bits(average)] == [*bits(reference)]


def test_moving_average_that_is_restored_or_copied_goes_on_as_the_original() -> None:
    original, restored = (
        MovingAverage(make_network(seed), DECAY, warm_up=True, averages_buffers=True) for seed in (0, 1)
    )
    for seed in range(3):
        original.update(make_network(seed))
    nn.ModuleList([restored]).load_state_dict(nn.ModuleList([original]).state_dict())  # as a part of a larger module
    averages = [original, restored, copy.deepcopy(original)]
    for average in averages:
        average.update(make_network(3))
    first, *others = [[*bits(average)] for average in averages]
    assert others == [first, first]
