"""Squared norm of the outputs' gradient by the weights: the Lipschitz-type constant of the paper's bound."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from codline.learning.inference import Normalize, TakeImages
from codline.models.networks.network import Network

DIGITS = 6  # significant digits that are stored: the last ones of a float32 differ between CPUs


def mean_squared_norm(network: Network, take: TakeImages, ids: np.ndarray, normalize: Normalize) -> float | None:
    """Mean over the images with these ids, to six significant digits; None if there are none."""
    if not len(ids):
        return None
    mean = squared_norms(network, normalize(torch.from_numpy(take(ids)).to(normalize.device))).mean()
    return float(f"{mean:.{DIGITS}g}")


def squared_norms(network: Network, images: Tensor) -> Tensor:
    """(N,) values of ||df/dw||^2, summed over the classes, where f are the probabilities in evaluation mode.

    One backward pass per image and class. Batching them (vmap) would use grouped convolutions, which are slower for
    small networks and whose kernels differ between CPUs.
    """
    network.eval()
    weights = list(network.parameters())
    norms = [squared_norm(network(image[None]).softmax(1)[0], weights) for image in images]
    return torch.tensor(norms, dtype=torch.float64)


def squared_norm(outputs: Tensor, weights: Sequence[Tensor]) -> float:
    gradients = (gradient for output in outputs for gradient in torch.autograd.grad(output, weights, retain_graph=True))
    return sum(float(gradient.double().square().sum()) for gradient in gradients)
