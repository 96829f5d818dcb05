"""Images in, logits out: streamed, so that memory does not grow with the pool."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from codline.data.dense_outputs import thinned
from codline.learning.compute import multiplying
from codline.models.base import Network

Take = Callable[[np.ndarray], np.ndarray]  # ids -> uint8 images
View = Callable[[Tensor], Tensor]


class Normalize:
    """uint8 images to standardised floats on the device, the channels of a pixel side by side: networks of convolutions run half again as fast."""

    def __init__(self, mean: list[float], std: list[float], device: torch.device) -> None:
        self.device = device
        self.mean, self.std = (torch.tensor(values, device=device)[:, None, None] for values in (mean, std))

    def __call__(self, images: Tensor) -> Tensor:
        # A plane per channel is standardised at a third of the time that it takes side by side; in place, for the floats are ours.
        planes = (
            images.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
            .div_(255)
            .sub_(self.mean)
            .div_(self.std)
        )
        return torch.empty_like(planes, memory_format=torch.channels_last).copy_(planes)


def stretches(count: int, size: int) -> Iterator[slice]:
    """Cut `count` rows into stretches of `size`; a last stretch of one row joins its neighbour.

    Batch-norm cannot train on a batch of one row.
    """
    start = 0
    while start < count:
        stop = start + size if count - start - size > 1 else count
        yield slice(start, stop)
        start = stop


def filled(images: np.ndarray) -> np.ndarray:
    """Repeat the last image until there is a multiple of eight, so that outputs do not depend on how the pool is cut into batches.

    MKL's kernels for all CPUs multiply rows four at a time, and give what is left over other last bits.
    """
    missing = -len(images) % 8
    return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)]) if missing else images


@dataclass(frozen=True)
class Pass:
    """What is seen of one batch."""

    ids: np.ndarray
    logits: list[np.ndarray]  # of every network
    features: np.ndarray | None = None  # of the first one, (images, channels), where asked for
    samples: Iterator[np.ndarray] = field(
        default_factory=lambda: iter(())
    )  # logits of the first one under dropout, pass after pass, where asked for
    predicted: np.ndarray | None = None  # losses foretold, where asked for


@dataclass(frozen=True)
class Wanted:
    """What is asked for besides logits."""

    thin: bool = False  # of dense logits, the pixels that are kept alone
    features: bool = False
    dropouts: Tensor | None = (
        None  # (passes, channels): what the features are multiplied with; the same for every image, so that batches do not matter
    )
    predictor: Callable[[list[Tensor]], Tensor] | None = None  # what foretells the first network's losses


@torch.inference_mode()
def passes(
    networks: Sequence[Network],
    take: Take,
    ids: np.ndarray,
    normalize: Normalize,
    batch_size: int,
    wanted: Wanted,
    view: View | None = None,
) -> Iterator[Pass]:
    """Several networks see the same images; `view` may change these first."""
    for network in networks:
        network.eval()
    for rows in stretches(len(ids), batch_size):
        count = len(ids[rows])
        images = torch.from_numpy(filled(take(ids[rows]))).to(normalize.device)
        inputs = normalize(images if view is None else view(images))
        with multiplying(normalize.device):
            stages, features, first = (
                networks[0].staged(inputs) if wanted.predictor is not None else plain(networks[0], inputs)
            )
            said = [first, *(network(inputs) for network in networks[1:])]
            foretold = wanted.predictor(stages) if wanted.predictor is not None else None
        features = features.float()
        samples = sampled(networks[0], features, wanted, count) if wanted.dropouts is not None else iter(())
        pooled = features.flatten(2).mean(2) if features.ndim > 2 else features
        predicted = foretold.float().cpu().numpy()[:count] if foretold is not None else None
        seen = pooled.cpu().numpy()[:count] if wanted.features else None
        yield Pass(ids[rows], [told(each, wanted, count) for each in said], seen, samples, predicted)


def plain(network: Network, inputs: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    features = network.body(inputs)
    return [], features, network.head(features)


@torch.inference_mode()
def sampled(network: Network, features: Tensor, wanted: Wanted, count: int) -> Iterator[np.ndarray]:
    assert wanted.dropouts is not None
    for factors in wanted.dropouts.to(features.device):
        with multiplying(features.device):
            logits = network.head(features * factors.view(1, -1, *(1,) * (features.ndim - 2)))
        yield told(logits, wanted, count)


def told(logits: Tensor, wanted: Wanted, count: int) -> np.ndarray:
    logits = logits.float()
    found: np.ndarray = (thinned(logits) if wanted.thin and logits.ndim > 2 else logits).cpu().numpy()[:count]
    return found


def logits(
    network: Network, take: Take, ids: np.ndarray, normalize: Normalize, batch_size: int, thin: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (ids, logits) of one network, batch by batch."""
    for one in passes([network], take, ids, normalize, batch_size, Wanted(thin)):
        yield one.ids, one.logits[0]
