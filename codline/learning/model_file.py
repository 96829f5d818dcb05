"""Model files: weights in safetensors, with what is needed to build the network again. Loading one runs no code."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from codline.core.errors import DataError
from codline.core.files import whole
from codline.models import AnyModel
from codline.models.base import ModelSpec, Network


@dataclass(frozen=True)
class Card:
    """What a model file says of itself."""

    model: dict[str, Any]
    classes: int
    shape: tuple[int, ...]
    cycle: str
    labels: int  # how many labelled images it was trained on

    @property
    def spec(self) -> ModelSpec:
        spec: ModelSpec = TypeAdapter[ModelSpec](AnyModel).validate_python(self.model)
        return spec


def save_network(path: Path, network: Network, card: Card) -> None:
    write_tensors(path, network.state_dict(), asdict(card))


def load_network(path: Path, *, classes: int, shape: tuple[int, ...]) -> tuple[Network, Card]:
    card = read_card(path, classes=classes, shape=shape)
    network = card.spec.hollow(classes, shape)
    try:
        network.load_state_dict(read_tensors(path)[0])
    except RuntimeError as error:
        raise DataError(
            f"{path}: weights do not fit {card.spec.model_dump()}: {' '.join(str(error).split())}"
        ) from error
    return network, card


def read_card(path: Path, *, classes: int, shape: tuple[int, ...]) -> Card:
    """What the file says of its weights, which are not read."""
    with opened(path) as file:
        try:
            meta = json.loads(file.metadata()["codline"])
            card = Card(**meta | {"shape": tuple(meta["shape"])})
            assert card.spec
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: not a model that codline wrote, or corrupt ({' '.join(str(error).split())})"
            ) from error
    if (card.classes, card.shape) != (classes, shape):
        raise DataError(
            f"{path}: a model for {card.classes} classes and images of {card.shape}, but the dataset has {classes} classes and images of {shape}"
        )
    return card


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
    # One metadata key alone: safetensors writes several in an order that changes from run to run.
    data = save(
        {key: value.detach().cpu().contiguous() for key, value in tensors.items()},
        {"codline": json.dumps(meta, sort_keys=True)},
    )
    with whole(path) as part:
        part.write_bytes(data)


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    with opened(path) as file:
        meta = json.loads(file.metadata()["codline"])
        return {key: file.get_tensor(key) for key in file.keys()}, meta  # noqa: SIM118 (not a dict)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a model that codline wrote, or corrupt ({error})") from error
