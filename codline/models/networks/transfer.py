"""Copies of tensors from the host to the device."""

import torch
from torch import Tensor

WITHOUT_PINNED_MEMORY = ("cpu", "mps")  # on these, device and host have the same memory


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to the device. The host does not wait for the device, which needs pinned memory to copy from."""
    if device.type in WITHOUT_PINNED_MEMORY:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
