"""Passes of networks over images of the store, in this process or in worker processes: the same bytes."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from codline.core.params import Compute
from codline.data.dataset_info import DatasetInfo
from codline.data.image_location import ImageLocation, locate_images
from codline.data.image_store import open_image_store
from codline.engine import local_workers, ray_workers
from codline.engine.setting import engine_setting
from codline.learning import inference
from codline.learning.compute import configure, select_device
from codline.learning.inference import BatchOutputs, Normalize, RequestedOutputs, TakeImages, Transform, batch_slices
from codline.learning.memory_order import PickledArray
from codline.learning.pass_files import open_pass_file
from codline.models.networks.network import Network
from codline.models.networks.transfer import to_device

CHUNK_BATCHES = 4  # that a worker computes and returns together: whole batches, so that they are those of one process


@dataclass(frozen=True)
class ImageReader:
    """Runs networks on the images of a store, batch by batch, where the engine says.

    With worker processes, memory holds up to eight batches per worker, with all dropout passes. Each worker opens the
    store by itself and has the threads that params.yaml gives one process.

    The stage's process makes passes of one chunk, passes on its GPU, and those with a transform: random views are drawn
    from one generator, batch after batch.
    """

    path: Path
    info: DatasetInfo
    compute: Compute
    batch_size: int

    @cached_property
    def take(self) -> TakeImages:
        return open_image_store(self.path).take

    @cached_property
    def normalize(self) -> Normalize:
        return Normalize(self.info.mean, self.info.std, select_device(self.compute.device))

    def tensors(self, ids: np.ndarray) -> Tensor:
        """Standardized images on the device."""
        return self.normalize(to_device(torch.from_numpy(self.take(ids)), self.normalize.device))

    def workers(self, count: int, is_augmented: bool = False) -> int:
        """How many workers share a pass over this number of images; 0: the stage's process makes it."""
        setting, chunks = engine_setting(), -(-count // (CHUNK_BATCHES * self.batch_size))
        is_on_gpu = self.normalize.device.type != "cpu" and not setting.gpus
        if is_augmented or is_on_gpu or chunks <= 1 or not (setting.is_ray or setting.workers > 1):
            return 0
        return min(setting.workers, chunks)

    def forward_batches(
        self,
        networks: Sequence[Network],
        ids: np.ndarray,
        requested: RequestedOutputs,
        transform: Transform | None = None,
    ) -> Generator[BatchOutputs]:
        """Run all networks on the same images; see codline.learning.inference.forward_batches.

        In a stage, finished batches are kept until it is done, and are not computed again if it was killed.
        """
        file = None
        if transform is None and len(ids) > CHUNK_BATCHES * self.batch_size:
            file = open_pass_file(self.path, networks, ids, requested, self.batch_size)
        if file is None:
            yield from self.compute_batches(networks, ids, requested, transform)
            return
        done = 0
        for batch in file.read(ids):
            yield batch
            done += len(batch.ids)
        with closing(self.compute_batches(networks, ids[done:], requested, None)) as batches:
            yield from map(file.append, batches)

    def compute_batches(
        self, networks: Sequence[Network], ids: np.ndarray, requested: RequestedOutputs, transform: Transform | None
    ) -> Generator[BatchOutputs]:
        """In this process, or where the engine says."""
        workers = self.workers(len(ids), is_augmented=transform is not None)
        if not workers:
            yield from inference.forward_batches(
                networks, self.take, ids, self.normalize, self.batch_size, requested, transform
            )
            return
        setting = engine_setting()
        # Workers that are given no GPU compute where this process would: `auto` must not find one on their machine.
        compute = self.compute if setting.gpus else self.compute.model_copy(update={"device": "cpu"})
        setup = partial(configure, compute)
        copy = replace(self, compute=compute)  # without open files
        job = partial(open_pass, copy, locate_images(self.path), networks, requested)
        chunks = (ids[rows] for rows in batch_slices(len(ids), CHUNK_BATCHES * self.batch_size))
        compute_in_order = ray_workers.compute_in_order if setting.is_ray else local_workers.compute_in_order
        with closing(compute_in_order(workers, setup, job, chunks)) as results:
            for arrays in chain.from_iterable(results):
                yield BatchOutputs(**arrays | {"dropout_logits": iter(arrays["dropout_logits"])})

    def stream_logits(
        self, network: Network, ids: np.ndarray, subsample: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (ids, logits) of one network, batch by batch."""
        for batch in self.forward_batches([network], ids, RequestedOutputs(subsample)):
            yield batch.ids, batch.logits[0]


def open_pass(
    reader: ImageReader, images: ImageLocation, networks: Sequence[Network], requested: RequestedOutputs
) -> Callable[[np.ndarray], list[dict[str, Any]]]:
    """In a worker: the function that computes the batches of a chunk of ids, as what can be pickled."""
    take = images.open(cache=0).take  # a pass takes every image once
    modules = [*networks, *([requested.loss_predictor] if isinstance(requested.loss_predictor, nn.Module) else [])]
    for module in modules:
        module.to(reader.normalize.device)

    def compute(ids: np.ndarray) -> list[dict[str, Any]]:
        batches = inference.forward_batches(networks, take, ids, reader.normalize, reader.batch_size, requested)
        return [picklable_arrays(batch) for batch in batches]

    return compute


def picklable_arrays(batch: BatchOutputs) -> dict[str, Any]:
    return {
        "ids": batch.ids,
        "logits": [PickledArray(logits) for logits in batch.logits],
        "features": None if batch.features is None else PickledArray(batch.features),
        "dropout_logits": [PickledArray(logits) for logits in batch.dropout_logits],
        "predicted_losses": batch.predicted_losses,
    }
