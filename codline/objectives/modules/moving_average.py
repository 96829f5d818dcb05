"""A moving average of a network's weights."""

import copy
from itertools import chain

import torch
from torch import Tensor, nn

from codline.models.networks.network import Network


class MovingAverage(nn.Module):
    """Copy of a network that follows its weights. Its tensors are named as those of torch's AveragedModel.

    Without the warm-up, the first weights dominate for 1/(1-decay) steps. The number of updates is kept on the host,
    too: reading it from a GPU would make every step wait until the GPU has finished.
    """

    n_averaged: Tensor

    def __init__(self, network: Network, decay: float, *, warm_up: bool, averages_buffers: bool) -> None:
        super().__init__()
        self.decay, self.warm_up, self.averages_buffers, self.updates = decay, warm_up, averages_buffers, 0
        self.register_buffer("n_averaged", torch.tensor(0))
        self.module = copy.deepcopy(network)
        self.register_load_state_dict_post_hook(lambda module, _: module.read_updates())  # type: ignore[no-untyped-call]

    def read_updates(self) -> None:
        self.updates = int(self.n_averaged)

    def start_from(self, network: Network) -> None:
        """Average these weights, too. Otherwise the first update replaces all weights by those that it is given."""
        self.module.load_state_dict(network.state_dict())
        self.updates = 1
        self.n_averaged.fill_(1)

    @torch.no_grad()
    def update(self, network: Network) -> None:
        weight = self.own_weight()
        averaged, current = (
            chain(each.parameters(), each.buffers() if self.averages_buffers else ()) for each in (self.module, network)
        )
        for mean, now in zip(averaged, current, strict=True):
            if self.updates and mean.is_floating_point():
                torch.lerp(now, mean, weight, out=mean)
            else:  # counters among the buffers
                mean.copy_(now)
        if not self.averages_buffers:
            for ours, theirs in zip(self.module.buffers(), network.buffers(), strict=True):
                ours.copy_(theirs)
        self.updates += 1
        self.n_averaged += 1

    def own_weight(self) -> float:
        """Of the average in the next update; the rest is that of the network's weights."""
        return min(self.decay, 1 - 1 / (self.updates + 1)) if self.warm_up else self.decay

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.module(images)
        return logits
