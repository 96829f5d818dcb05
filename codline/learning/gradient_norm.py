"""Squared norm of the outputs' gradient by the weights: the Lipschitz-type constant of the paper's bound."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from codline.learning.inference import Normalize, TakeImages
from codline.models.networks.network import Network
from codline.models.networks.transfer import to_device

DIGITS = 6  # significant digits that are stored: the last ones of a float32 differ between CPUs


class GradientSample:
    """Images at which gradients of several networks are measured: half of `count` from each of the two pools."""

    def __init__(self, pools: Mapping[str, np.ndarray], count: int, rng: np.random.Generator, take: TakeImages) -> None:
        self.sizes = {name: len(ids) for name, ids in pools.items()}
        self.images = {
            name: take(rng.choice(ids, min(-(-count // 2), len(ids)), replace=False)) for name, ids in pools.items()
        }

    def measure(self, network: Network, normalize: Normalize) -> dict[str, float]:
        """Mean squared norm for each pool and for `all` training images, where each pool counts by its size.

        `variation` is the coefficient of variation over all training images: deviation divided by mean.
        """
        norms = {
            name: squared_norms(network, normalize(to_device(torch.from_numpy(images), normalize.device))).numpy()
            for name, images in self.images.items()
            if len(images)
        }
        values, weights = np.concatenate([*norms.values()]), np.concatenate([*map(self.weights, norms)])
        mean = np.average(values, weights=weights)
        variation = np.sqrt(np.average((values - mean) ** 2, weights=weights)) / mean
        means = {name: norms[name].mean() for name in norms} | {"all": mean, "variation": variation}
        return {name: float(f"{value:.{DIGITS}g}") for name, value in means.items()}

    def weights(self, pool: str) -> np.ndarray:
        """How many images of the pool each of its sampled images stands for."""
        count = len(self.images[pool])
        return np.full(count, self.sizes[pool] / count)


def squared_norms(network: Network, images: Tensor) -> Tensor:
    """(N,) values of ||df/dw||^2, summed over the classes, where f are the logits in evaluation mode.

    One backward pass per image and class. Batching them (vmap) would use grouped convolutions, which are slower for
    small networks and whose kernels differ between CPUs.
    """
    network.eval()
    weights = list(network.parameters())
    return torch.stack([squared_norm(network(image[None])[0], weights) for image in images]).cpu()


def squared_norm(outputs: Tensor, weights: Sequence[Tensor]) -> Tensor:
    gradients = (gradient for output in outputs for gradient in torch.autograd.grad(output, weights, retain_graph=True))
    zero = torch.zeros((), dtype=torch.float64, device=outputs.device)
    return sum((gradient.double().square().sum() for gradient in gradients), zero)
