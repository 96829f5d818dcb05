"""Squared gradient norm of the outputs with respect to the weights: the Lipschitz-type constant in the paper's bound."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from codline.learning.inference import Normalize, Take
from codline.models.base import Network

DIGITS = 6  # stored: the last digits of a float32 depend on the kernels that a CPU is given, and mean nothing


def mean_squared_norm(network: Network, take: Take, ids: np.ndarray, normalize: Normalize) -> float | None:
    """Mean over the images with these ids, to six significant digits; None without images."""
    if not len(ids):
        return None
    mean = squared_norms(network, normalize(torch.from_numpy(take(ids)).to(normalize.device))).mean()
    return float(f"{mean:.{DIGITS}g}")


def squared_norms(network: Network, images: Tensor) -> Tensor:
    """||df/dw||^2 of each image, summed over the classes: f are probabilities, the network is in evaluation mode.

    One backward pass per image and class. Batching them (vmap) takes grouped convolutions, whose kernels differ between CPUs and which are
    slower for small networks.
    """
    network.eval()
    weights = list(network.parameters())
    return torch.tensor(
        [squared_norm(network(image[None]).softmax(1)[0], weights) for image in images], dtype=torch.float64
    )


def squared_norm(outputs: Tensor, weights: Sequence[Tensor]) -> float:
    gradients = (gradient for output in outputs for gradient in torch.autograd.grad(output, weights, retain_graph=True))
    return sum(float(gradient.double().square().sum()) for gradient in gradients)
