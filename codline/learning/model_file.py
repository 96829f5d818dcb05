"""Model files: weights in safetensors, with the metadata to rebuild the network. Loading one runs no code."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from codline.core.errors import DataError
from codline.core.files import atomic_write
from codline.models import AnyModel
from codline.models.base import ModelSpec
from codline.models.networks.network import Network


@dataclass(frozen=True)
class ModelCard:
    """Metadata of a model file."""

    model: dict[str, Any]
    classes: int
    shape: tuple[int, ...]
    cycle: str
    labels: int  # number of labeled images it was trained on

    @property
    def spec(self) -> ModelSpec:
        spec: ModelSpec = TypeAdapter[ModelSpec](AnyModel).validate_python(self.model)
        return spec


def save_network(path: Path, network: Network, card: ModelCard) -> None:
    write_tensors(path, network.state_dict(), asdict(card))


def load_network(path: Path, *, classes: int, shape: tuple[int, ...]) -> tuple[Network, ModelCard]:
    card = read_card(path, classes=classes, shape=shape)
    network = card.spec.uninitialized_network(classes, shape)
    try:
        network.load_state_dict(read_tensors(path)[0])
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: weights do not fit {card.spec.model_dump()}: {reason}") from error
    return network, card


def read_card(path: Path, *, classes: int, shape: tuple[int, ...]) -> ModelCard:
    """Read the metadata alone and check it against the dataset."""
    with open_safetensors(path) as file:
        meta = json.loads(file.metadata()["codline"])
        card = ModelCard(**meta | {"shape": tuple(meta["shape"])})
        assert card.spec
    if (card.classes, card.shape) != (classes, shape):
        raise DataError(
            f"{path}: a model for {card.classes} classes and images of {card.shape}, "
            f"but the dataset has {classes} classes and images of {shape}"
        )
    return card


def write_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_bytes(serialize_tensors(tensors, meta))


def serialize_tensors(tensors: dict[str, Tensor], meta: dict[str, Any]) -> bytes:
    # A single metadata key: safetensors writes several in an order that changes from run to run.
    metadata = {"codline": json.dumps(meta, sort_keys=True)}
    return save({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, metadata)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with open_safetensors(path) as file:
        meta = json.loads(file.metadata()["codline"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    for key, value in tensors.items():
        if not math.isfinite(value.sum(dtype=torch.float64)):  # a tenth of the time of testing each number
            raise DataError(f"{path}: {key} has a weight that is not a finite number")
    return tensors, meta


def tensors_under(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors called `<name>.<key>`, as {key: tensor}."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a model that codline wrote, or corrupt ({reason})") from error
