"""Model files: what is not a model of ours, or not for this dataset, is refused; nothing in one can run code."""

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

CARD = model_file.Card(SmallCnn(width=2).model_dump(), 4, (1, 8, 8), "c1", 10)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    model_file.save_network(path, SmallCnn(width=2).initial(4, (1, 8, 8), 0), CARD)
    return path


def load(path: Path) -> None:
    model_file.load_network(path, classes=4, shape=(1, 8, 8))


def test_a_model_of_another_shape_is_refused(model: Path) -> None:
    with pytest.raises(DataError) as refused:
        model_file.load_network(model, classes=10, shape=(3, 32, 32))
    told = "a model for 4 classes and images of (1, 8, 8), but the dataset has 10 classes and images of (3, 32, 32)"
    assert str(refused.value) == f"{model}: {told}"
    assert refused.value.exit_code == 3


def test_weights_that_do_not_fit_their_own_card_are_refused(model: Path) -> None:
    network = SmallCnn(width=3).initial(4, (1, 8, 8), 0)
    model_file.save_network(model, network, CARD)
    with pytest.raises(DataError, match="weights do not fit") as refused:
        load(model)
    assert "\n" not in str(refused.value)


def test_a_file_cut_off_is_refused(model: Path) -> None:
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
def test_a_safetensors_file_of_somebody_else_is_refused(tmp_path: Path, meta: dict[str, str] | None) -> None:
    header = json.dumps({} if meta is None else {"__metadata__": meta}).encode()
    path = tmp_path / "other.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(DataError, match="not a model that codline wrote, or corrupt"):
        load(path)


def test_a_card_that_names_an_unknown_model_is_refused(model: Path) -> None:
    tensors, meta = model_file.read_tensors(model)
    model_file.write_tensors(model, tensors, meta | {"model": {"name": "transformer"}})
    with pytest.raises(DataError, match="transformer"):
        load(model)


class Trap:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("sprung"),)  # type: ignore[return-value]


def test_a_pickle_in_place_of_a_model_runs_no_code(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError):
        load(model)
    assert not Path("sprung").exists()
    torch.save({"w": torch.ones(1)}, model)
    with pytest.raises(DataError):
        load(model)


def test_no_file_is_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none: not found"):
        load(tmp_path / "none")
