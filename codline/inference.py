"""Images in, logits out: streamed, so that memory does not grow with the pool."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from codline.dense import thinned

Take = Callable[[np.ndarray], np.ndarray]  # ids -> uint8 images
View = Callable[[Tensor], Tensor]


class Normalize:
    """uint8 images to standardised floats on the device, the channels of a pixel side by side: networks of convolutions run half again as fast."""

    def __init__(self, mean: list[float], std: list[float], device: torch.device) -> None:
        self.device = device
        self.mean, self.std = (torch.tensor(values, device=device)[:, None, None] for values in (mean, std))

    def __call__(self, images: Tensor) -> Tensor:
        return (images.to(torch.float32, memory_format=torch.channels_last) / 255 - self.mean) / self.std


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


def logits(
    network: nn.Module, take: Take, ids: np.ndarray, normalize: Normalize, batch_size: int, thin: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (ids, logits) batch by batch, in evaluation mode."""
    for some, (found,) in all_logits([network], take, ids, normalize, batch_size, thin=thin):
        yield some, found


@torch.inference_mode()
def all_logits(
    networks: Sequence[nn.Module], take: Take, ids: np.ndarray, normalize: Normalize, batch_size: int, view: View | None = None, thin: bool = False
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """The same of several networks, which see the same images; `view` may change these first. Of dense outputs, `thin` takes the pixels that are kept."""
    for network in networks:
        network.eval()
    for rows in stretches(len(ids), batch_size):
        images = torch.from_numpy(filled(take(ids[rows]))).to(normalize.device)
        inputs = normalize(images if view is None else view(images))
        said = (network(inputs) for network in networks)
        yield ids[rows], [(thinned(out) if thin and out.ndim > 2 else out).float().cpu().numpy()[: len(ids[rows])] for out in said]
