"""How steep a network is: the squared gradient norm of its outputs with respect to its weights, which bounds how far a step can move them."""

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from codline.inference import Normalize, Take
from codline.models.base import Network

CHUNK = 8  # images whose gradients are held at a time, one class after another


def mean_squared_norm(network: Network, take: Take, ids: np.ndarray, normalize: Normalize) -> float | None:
    """Over these images; of none there is none."""
    if not len(ids):
        return None
    return float(squared_norms(network, normalize(torch.from_numpy(take(ids)).to(normalize.device))).double().mean())


def squared_norms(network: Network, images: Tensor) -> Tensor:
    """||df/dw||^2 for each image: probabilities f, summed over the classes; evaluation mode."""
    network.eval()
    weights = {name: value.detach() for name, value in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def output(weights: dict[str, Tensor], image: Tensor, chosen: Tensor) -> Tensor:
        logits: Tensor = functional_call(network, (weights, buffers), (image[None],))
        return logits.softmax(1)[0].index_select(0, chosen[None]).sum()

    each = vmap(grad(output), in_dims=(None, 0, None))
    classes = network(images[:1]).shape[1]
    found = []
    for some in images.split(CHUNK):
        total = torch.zeros(len(some), device=images.device)
        for number in range(classes):
            gradients = each(weights, some, torch.tensor(number, device=images.device))
            total += sum((value.flatten(1).square().sum(1) for value in gradients.values()), torch.zeros_like(total))
        found.append(total)
    return torch.cat(found)
