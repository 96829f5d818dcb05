"""Streaming inference: images in, logits out, batch by batch, so that memory does not grow with the pool."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from codline.data.dense_outputs import subsample_pixels
from codline.data.output_store import refuse_infinite
from codline.learning.compute import autocast
from codline.models.networks.network import Network
from codline.models.networks.transfer import to_device

TakeImages = Callable[[np.ndarray], np.ndarray]  # ids -> uint8 images
Transform = Callable[[Tensor], Tensor]


class Normalize:
    """Standardizes uint8 images, on the device. The result is channels_last: convolutions run 1.5 times as fast."""

    def __init__(self, mean: list[float], std: list[float], device: torch.device) -> None:
        self.device = device
        self.mean, self.std = (torch.tensor(values, device=device)[:, None, None] for values in (mean, std))

    def __call__(self, images: Tensor) -> Tensor:
        # Standardizing in contiguous_format takes a third of the time of channels_last. In place, on our own copy.
        planes = images.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        planes.div_(255).sub_(self.mean).div_(self.std)
        return torch.empty_like(planes, memory_format=torch.channels_last).copy_(planes)


def batch_slices(count: int, size: int, smallest: int = 2) -> Iterator[slice]:
    """Cut `count` rows into batches of `size`. If fewer than `smallest` rows are left over, they join the last batch.

    Batch norm needs two.
    """
    start = 0
    while start < count:
        stop = start + size if count - start - size >= smallest else count
        yield slice(start, stop)
        start = stop


def pad_to_multiple_of_eight(images: np.ndarray) -> np.ndarray:
    """Repeat the last image, so that outputs do not depend on how the pool is cut into batches.

    MKL's COMPATIBLE kernels multiply four rows at a time and compute remaining rows with other last bits.
    """
    missing = -len(images) % 8
    return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)]) if missing else images


@dataclass(frozen=True)
class RequestedOutputs:
    """Which outputs to compute in addition to logits."""

    subsample: bool = False  # of dense logits, return only every eighth pixel
    features: bool = False
    # (passes, channels) factors for the features, the same for all images, so that results do not depend on batches.
    dropout_factors: Tensor | None = None
    loss_predictor: Callable[[list[Tensor]], Tensor] | None = None  # for the first network


@dataclass(frozen=True)
class BatchOutputs:
    """Outputs for one batch of images: the logits of every network; the others, if requested, of the first one."""

    ids: np.ndarray
    logits: list[np.ndarray]
    features: np.ndarray | None = None  # (images, channels)
    dropout_logits: Iterator[np.ndarray] = field(default_factory=lambda: iter(()))  # one array per stochastic pass
    predicted_losses: np.ndarray | None = None


@torch.inference_mode()
def forward_batches(
    networks: Sequence[Network],
    take: TakeImages,
    ids: np.ndarray,
    normalize: Normalize,
    batch_size: int,
    requested: RequestedOutputs,
    transform: Transform | None = None,
) -> Iterator[BatchOutputs]:
    """Run all networks on the same images, after an optional transform of the raw pixels."""
    for network in networks:
        network.eval()
    first, *others = networks
    for rows in batch_slices(len(ids), batch_size):
        count = len(ids[rows])
        images = to_device(torch.from_numpy(pad_to_multiple_of_eight(take(ids[rows]))), normalize.device)
        inputs = normalize(images if transform is None else transform(images))
        predicted = None
        with autocast(normalize.device):
            if requested.loss_predictor is None:
                features = first.body(inputs)
                first_logits = first.head(features)
            else:
                stages, features, first_logits = first.forward_with_stages(inputs)
            logits = [first_logits, *(network(inputs) for network in others)]
            if requested.loss_predictor is not None:
                predicted = requested.loss_predictor(stages)
        features = features.float()
        pooled = features.flatten(2).mean(2) if features.ndim > 2 else features
        yield BatchOutputs(
            ids=ids[rows],
            logits=[to_array(each, requested, count) for each in logits],
            features=pooled.cpu().numpy()[:count] if requested.features else None,
            dropout_logits=stream_dropout_logits(first, features, requested, count),
            predicted_losses=None if predicted is None else predicted.float().cpu().numpy()[:count],
        )


@torch.inference_mode()
def stream_dropout_logits(
    network: Network, features: Tensor, requested: RequestedOutputs, count: int
) -> Iterator[np.ndarray]:
    if requested.dropout_factors is None:
        return
    for factors in to_device(requested.dropout_factors, features.device):
        with autocast(features.device):
            logits = network.head(features * factors.view(1, -1, *(1,) * (features.ndim - 2)))
        yield to_array(logits, requested, count)


def to_array(logits: Tensor, requested: RequestedOutputs, count: int) -> np.ndarray:
    """The first `count` rows, without those that were padded, in float32."""
    logits = logits.float()
    subsampled = subsample_pixels(logits) if requested.subsample and logits.ndim > 2 else logits
    array: np.ndarray = subsampled.cpu().numpy()[:count]
    refuse_infinite(array, "the model's outputs are not finite numbers; expected weights for which they are")
    return array


def stream_logits(
    network: Network, take: TakeImages, ids: np.ndarray, normalize: Normalize, batch_size: int, subsample: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (ids, logits) of one network, batch by batch."""
    for batch in forward_batches([network], take, ids, normalize, batch_size, RequestedOutputs(subsample)):
        yield batch.ids, batch.logits[0]
