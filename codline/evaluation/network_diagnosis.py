"""Diagnosis that runs networks: gradient norms and TOD of this cycle's model and the snapshots of its training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from codline.data.array_store import ArrayStore
from codline.evaluation.diagnosis import ImageStatistics, discrepancy_capture
from codline.learning import auxiliary_networks, model_file
from codline.learning.gradient_norm import GradientSample
from codline.learning.image_reader import ImageReader
from codline.models.networks.network import Network


def networks_in_training(
    model: Path, auxiliary: Path, classes: int, shape: tuple[int, ...], device: torch.device
) -> Iterator[tuple[int, int, Network]]:
    """(steps since the start of training, steps before its end, network): the snapshots, then the model."""
    network, card = model_file.load_network(model, classes=classes, shape=shape)
    tensors = auxiliary_networks.read_auxiliary(auxiliary)
    total = auxiliary_networks.training_steps(tensors)
    for before_end in reversed(auxiliary_networks.snapshot_steps(tensors)):
        empty = card.spec.uninitialized_network(card.classes, card.shape)
        yield (
            total - before_end,
            before_end,
            auxiliary_networks.load_auxiliary_network(empty, before_end, tensors).to(device),
        )
    yield total, 0, network.to(device)


def diagnose_networks(
    networks: Iterator[tuple[int, int, Network]],
    statistics: ImageStatistics,
    outputs: ArrayStore,
    sample: GradientSample | None,
    reader: ImageReader,
) -> dict[str, Any]:
    """Capture curves of TOD by steps before the end, and squared gradient norms of the model and within the cycle."""
    tod, norms = {}, {}
    for step, before_end, network in networks:
        if before_end:
            logits = reader.stream_logits(network, statistics.ids, subsample=True)
            tod[str(before_end)] = discrepancy_capture(statistics, outputs, logits)
        if sample is not None:
            norms[step] = sample.measure(network, reader.normalize)
    if not norms:
        return {"squared_gradient_norm": None, "tod": tod}
    line = {key: [norm[key] for norm in norms.values()] for key in ("all", "variation")}
    return {"squared_gradient_norm": {**norms[max(norms)], "within_cycle": {"steps": [*norms], **line}}, "tod": tod}
