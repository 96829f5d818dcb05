"""What the processes of one training share: gradients, statistics of batch norm, losses. fit() runs in each of them."""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from codline.data.dense_outputs import IGNORE_INDEX
from codline.data.random_streams import derive_seed
from codline.models.networks.batch_parts import BatchPart, part_of_rank, whole_batch

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
StepLosses = Callable[[Tensor, Tensor, BatchPart], tuple[Tensor, Tensor, Tensor]]


class OneProcess:
    """Training in one process: nothing is shared."""

    processes = 1

    def part(self, count: int) -> BatchPart:
        """What this process takes of a batch."""
        return whole_batch(count)

    def synchronize(self, modules: list[nn.Module], step_losses: StepLosses) -> StepLosses:
        """The same function of these modules. A backward pass then gives all processes the same gradients."""
        return step_losses

    def start_epoch(self, seed: int, epoch: int) -> None:
        """Seed random layers such as dropout."""

    def task_weight(self, targets: Tensor, part: BatchPart) -> Tensor | float:
        """Factor of the mean task loss of the part."""
        return 1.0

    def mean(self, value: Tensor) -> Tensor:
        """Over the processes."""
        return value

    def total(self, value: Tensor) -> Tensor:
        """Over the processes."""
        return value


class RankGroup(OneProcess):
    """The processes of a training on this machine, of which this one is `rank`. `store` is a file that they share.

    Gradients are averaged by DistributedDataParallel: with gloo between CPUs, with nccl between GPUs. Every process
    normalizes its own part of a batch; before each step all get the statistics of rank 0, which are saved.
    """

    def __init__(self, store: Path, rank: int, processes: int, device: torch.device) -> None:
        self.rank, self.processes = rank, processes
        backend = "nccl" if device.type == "cuda" else "gloo"
        os.environ |= {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK}
        distributed.init_process_group(backend, f"file://{store}", rank=rank, world_size=processes)

    def close(self) -> None:
        distributed.destroy_process_group()

    def part(self, count: int) -> BatchPart:
        return part_of_rank(count, self.rank, self.processes)

    def synchronize(self, modules: list[nn.Module], step_losses: StepLosses) -> StepLosses:
        warnings.filterwarnings("ignore", "Grad strides do not match")  # of weights with a dimension of 1
        return DistributedDataParallel(StepModule(modules, step_losses))

    def start_epoch(self, seed: int, epoch: int) -> None:
        """By epoch, so that a checkpoint needs the random states of no other process."""
        torch.manual_seed(derive_seed(seed, "rank", str(self.rank), str(epoch)))

    def task_weight(self, targets: Tensor, part: BatchPart) -> Tensor | float:
        """For masks: by the number of pixels that have a class."""
        if targets.ndim == 1:
            return part.image_weight
        count = (targets != IGNORE_INDEX).sum() * (part.image_weight > 0)
        return self.processes * count / self.total(count).clamp(min=1)

    def mean(self, value: Tensor) -> Tensor:
        return self.total(value) / self.processes

    def total(self, value: Tensor) -> Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total


class StepModule(nn.Module):
    """The networks and losses of a step as the one module that DistributedDataParallel needs."""

    def __init__(self, modules: list[nn.Module], step_losses: StepLosses) -> None:
        super().__init__()
        self.modules_of_step, self.step_losses = nn.ModuleList(modules), step_losses

    def forward(self, images: Tensor, targets: Tensor, part: BatchPart) -> tuple[Tensor, Tensor, Tensor]:
        return self.step_losses(images, targets, part)
