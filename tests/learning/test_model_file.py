"""Model files: other files, and models for another dataset, are refused; loading one runs no code."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from codline.core.errors import DataError
from codline.learning import model_file
from codline.models.small_cnn import SmallCnn

CARD = model_file.ModelCard(SmallCnn(width=2).model_dump(), 4, (1, 8, 8), "c1", 10)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    model_file.save_network(path, SmallCnn(width=2).initial_network(4, (1, 8, 8), 0), CARD)
    return path


def load(path: Path) -> None:
    model_file.load_network(path, classes=4, shape=(1, 8, 8))


def test_load_network_refuses_a_model_for_another_dataset(model: Path) -> None:
    with pytest.raises(DataError) as refused:
        model_file.load_network(model, classes=10, shape=(3, 32, 32))
    expected = "a model for 4 classes and images of (1, 8, 8), but the dataset has 10 classes and images of (3, 32, 32)"
    assert str(refused.value) == f"{model}: {expected}"
    assert refused.value.exit_code == 3


def test_load_network_refuses_weights_that_do_not_fit_the_card(model: Path) -> None:
    model_file.save_network(model, SmallCnn(width=3).initial_network(4, (1, 8, 8), 0), CARD)
    with pytest.raises(DataError, match="weights do not fit") as refused:
        load(model)
    assert "\n" not in str(refused.value)


def test_load_network_refuses_a_truncated_file(model: Path) -> None:
    data = model.read_bytes()
    for length in (0, 4, 8, 100, len(data) // 2, len(data) - 1):
        model.write_bytes(data[:length])
        with pytest.raises(DataError, match="not a model that codline wrote, or corrupt"):
            load(model)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {"other": "1"},
        {"codline": "not json"},
        {"codline": "{}"},
        {"codline": "[]"},
        {"codline": json.dumps({"model": {}})},
    ],
)
def test_load_network_refuses_a_file_without_our_metadata(tmp_path: Path, meta: dict[str, str] | None) -> None:
    header = json.dumps({} if meta is None else {"__metadata__": meta}).encode()
    path = tmp_path / "other.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(DataError, match="not a model that codline wrote, or corrupt"):
        load(path)


def test_load_network_refuses_an_unknown_model(model: Path) -> None:
    tensors, meta = model_file.read_tensors(model)
    model_file.write_tensors(model, tensors, meta | {"model": {"name": "transformer"}})
    with pytest.raises(DataError, match="transformer"):
        load(model)


class CodeInPickle:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("executed"),)  # type: ignore[return-value]


def test_load_network_refuses_a_pickle_without_running_its_code(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model.write_bytes(pickle.dumps(CodeInPickle()))
    with pytest.raises(DataError):
        load(model)
    assert not Path("executed").exists()
    torch.save({"w": torch.ones(1)}, model)
    with pytest.raises(DataError):
        load(model)


def test_load_network_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none: not found"):
        load(tmp_path / "none")
