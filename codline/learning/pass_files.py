"""Batches of a pass, kept in the state directory while its stage runs, so that a killed pass goes on where it was.

A file has one record per batch: its length, its SHA-256, and its arrays as a safetensors file. Records are in the order
of the pass, so what a kill leaves is the beginning of it, with a truncated record at the end. The runner removes the
files when the stage's outputs are accepted.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor, nn

from codline.core.errors import DISK_ERRORS, storage_error
from codline.learning.inference import BatchOutputs, RequestedOutputs
from codline.learning.memory_order import in_memory_order
from codline.models.networks.network import Network
from codline.runtime import stage_snapshot, state_directory
from codline.runtime.code_files import code_at_start

MAX_BYTES = 4 * 2**30  # of a file: later batches are not kept, and computed again after a kill
LENGTH_BYTES, DIGEST_BYTES = 8, hashlib.sha256().digest_size


class PassFile:
    """The finished batches of one pass."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, ids: np.ndarray) -> Iterator[BatchOutputs]:
        """The batches that are whole, from the beginning of the pass over these ids. Cuts off what follows them."""
        if not self.path.exists():
            return
        with self.path.open("r+b") as file:
            done = end = 0
            while (batch := read_record(file)) is not None and np.array_equal(batch.ids, ids[done:][: len(batch.ids)]):
                yield batch
                done, end = done + len(batch.ids), file.tell()
            file.truncate(end)

    def append(self, batch: BatchOutputs) -> BatchOutputs:
        """Keep a batch, and return one to use instead: its dropout passes can be taken only once."""
        dropout_logits = list(batch.dropout_logits)
        stage_snapshot.refuse_changed_inputs()  # images are read in every batch
        data = serialize_batch(batch, dropout_logits)
        record = len(data).to_bytes(LENGTH_BYTES, "big") + hashlib.sha256(data).digest() + data
        try:
            # Not durable, as checkpoints: a power failure truncates the file or damages a record.
            with self.path.open("ab") as file:
                if file.tell() + len(record) <= MAX_BYTES:
                    file.write(record)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise storage_error(error, self.path) from error
            raise
        return dataclasses.replace(batch, dropout_logits=iter(dropout_logits))


def open_pass_file(
    images: Path, networks: Sequence[Network], ids: np.ndarray, requested: RequestedOutputs, batch_size: int
) -> PassFile | None:
    """The file of this pass of the stage that this process runs. Its name is a hash of all that determines its content.

    None for a pass whose images the stage itself has written, such as that of prepare: it writes them again.
    """
    snapshot = stage_snapshot.current()
    if snapshot is None or str(images) not in snapshot.inputs:
        return None
    identity = {
        "params": snapshot.params,
        "inputs": snapshot.inputs,
        "code": code_at_start(),
        "torch": torch.__version__,
        "batch_size": batch_size,
        "requested": [requested.subsample, requested.features],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for tensor in deciding_tensors(networks, requested):
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(np.ascontiguousarray(ids).data)
    return PassFile(state_directory.pass_path(snapshot.stage, digest.hexdigest()[:32]))


def deciding_tensors(networks: Sequence[Network], requested: RequestedOutputs) -> Iterator[Tensor]:
    """Of the networks and of what else the outputs are computed with."""
    modules = [*networks, requested.loss_predictor]
    for module in modules:
        if isinstance(module, nn.Module):
            yield from (tensor for _, tensor in sorted(module.state_dict().items()))
    if requested.dropout_factors is not None:
        yield requested.dropout_factors


def serialize_batch(batch: BatchOutputs, dropout_logits: list[np.ndarray]) -> bytes:
    """As a safetensors file: each array in its order in memory, with the axes that restore it."""
    arrays = {"ids": batch.ids, "features": batch.features, "predicted_losses": batch.predicted_losses}
    arrays |= {f"logits.{number}": logits for number, logits in enumerate(batch.logits)}
    arrays |= {f"dropout_logits.{number}": logits for number, logits in enumerate(dropout_logits)}
    present = {name: in_memory_order(array) for name, array in arrays.items() if array is not None}
    content = {name: array for name, (array, _) in present.items()}
    return safetensors.numpy.save(content | {f"axes.{name}": axes for name, (_, axes) in present.items()})


def parse_batch(data: bytes) -> BatchOutputs:
    content = safetensors.numpy.load(data)
    arrays = {name: content[name].transpose(content[f"axes.{name}"]) for name in content if f"axes.{name}" in content}

    def numbered(kind: str) -> list[np.ndarray]:
        return [arrays[f"{kind}.{number}"] for number in range(sum(name.startswith(f"{kind}.") for name in arrays))]

    return BatchOutputs(
        ids=arrays["ids"],
        logits=numbered("logits"),
        features=arrays.get("features"),
        dropout_logits=iter(numbered("dropout_logits")),
        predicted_losses=arrays.get("predicted_losses"),
    )


def read_record(file: IO[bytes]) -> BatchOutputs | None:
    """None at the end of the file, and for a record that is truncated or damaged."""
    length, digest = int.from_bytes(file.read(LENGTH_BYTES), "big"), file.read(DIGEST_BYTES)
    data = file.read(min(length, MAX_BYTES))
    return parse_batch(data) if data and hashlib.sha256(data).digest() == digest else None
