"""Files of a pass: whole batches are read as they were, damaged ones are computed again, other passes have others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from codline.core.errors import DataError, StorageError
from codline.learning import pass_files
from codline.learning.inference import BatchOutputs, RequestedOutputs
from codline.learning.pass_files import PassFile, open_pass_file
from codline.models.networks.loss_predictor import LossPredictor
from codline.models.networks.network import Network
from codline.runtime import stage_snapshot, state_directory

IDS = np.arange(12) * 3


def batch_of(ids: np.ndarray) -> BatchOutputs:
    """Arrays of every kind; dense logits are in channels_last order, as networks return them."""
    rng = np.random.default_rng(int(ids[0]))
    dense = rng.random((len(ids), 4, 5, 3), np.float32).transpose(0, 3, 1, 2)
    logits = rng.random((len(ids), 3), np.float32)
    passes = iter([dense + 1, dense + 2])
    return BatchOutputs(ids, [dense, logits], logits * 2, passes, logits[:, 0].astype(np.float64))


def arrays_of(batch: BatchOutputs) -> list[tuple[tuple[int, ...], Any, bytes]]:
    arrays = [batch.ids, *batch.logits, batch.features, *batch.dropout_logits, batch.predicted_losses]
    return [(array.strides, array.dtype, array.tobytes()) for array in arrays if array is not None]


def write_batches(path: Path) -> PassFile:
    file = PassFile(path)
    for start in range(0, len(IDS), 4):
        file.append(batch_of(IDS[start : start + 4]))
    return file


def ids_read(file: PassFile, ids: np.ndarray = IDS) -> list[int]:
    return [image_id for batch in file.read(ids) for image_id in batch.ids.tolist()]


def test_batches_are_read_as_they_were_with_their_order_in_memory(tmp_path: Path) -> None:
    file = PassFile(tmp_path / "pass")
    batches = batch_of(IDS[:8]), replace(batch_of(IDS[8:]), features=None)
    returned = [arrays_of(file.append(batch)) for batch in batches]
    assert returned[0] == arrays_of(batch_of(IDS[:8]))
    assert [arrays_of(batch) for batch in file.read(IDS)] == returned


def test_pass_without_a_file_starts_at_its_beginning(tmp_path: Path) -> None:
    assert ids_read(PassFile(tmp_path / "none")) == []


@pytest.mark.parametrize("position", [0, 7, 8, 39, 40, 41, 500])
def test_record_that_is_damaged_and_what_follows_it_are_cut_off(tmp_path: Path, position: int) -> None:
    file = write_batches(tmp_path / "pass")
    content = bytearray(file.path.read_bytes())
    second = len(content) // 3
    content[second + position] ^= 1
    file.path.write_bytes(content)
    assert ids_read(file) == IDS[:4].tolist()
    assert file.path.stat().st_size == second
    file.append(batch_of(IDS[4:]))
    assert ids_read(file) == IDS.tolist()


@pytest.mark.parametrize("missing", [1, 39, 40, 500])
def test_record_that_is_truncated_is_cut_off(tmp_path: Path, missing: int) -> None:
    file = write_batches(tmp_path / "pass")
    file.path.write_bytes(file.path.read_bytes()[:-missing])
    assert ids_read(file) == IDS[:8].tolist()
    assert ids_read(file) == IDS[:8].tolist()


def test_records_of_other_images_are_cut_off(tmp_path: Path) -> None:
    file = write_batches(tmp_path / "pass")
    assert ids_read(file, np.array([*IDS[:4], 100, 101, 102, 103])) == IDS[:4].tolist()
    file = write_batches(tmp_path / "longer")
    assert ids_read(file, IDS[:6]) == IDS[:4].tolist()


def test_file_does_not_grow_beyond_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = write_batches(tmp_path / "pass").path.stat().st_size
    monkeypatch.setattr(pass_files, "MAX_BYTES", size - 1)
    assert ids_read(write_batches(tmp_path / "limited")) == IDS[:8].tolist()


def test_full_disk_is_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pass"
    path.symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"/pass: cannot be written: No space left on device; free some space"):
        write_batches(path)
    assert StorageError.exit_code == 5


class Pass:
    """A pass in a stage that has begun; `path` is that of its file."""

    def __init__(self, folder: Path) -> None:
        (folder / "params.yaml").write_text("score: {batch_size: 4}\n")
        (folder / "images.arrow").write_text("images")
        self.images, self.raw = Path("images.arrow"), {"score": {"batch_size": 4}}
        self.networks = [Network(nn.Linear(3, 3), nn.BatchNorm1d(3))]
        self.ids, self.requested, self.batch_size = IDS, RequestedOutputs(), 4

    def begin(self) -> None:
        stage_snapshot.end()
        stage_snapshot.begin("score@c1", Path("params.yaml"), self.raw, {"score"}, [Path("images.arrow")])

    def file(self) -> PassFile | None:
        return open_pass_file(self.images, self.networks, self.ids, self.requested, self.batch_size)

    def path(self) -> Path:
        self.begin()
        file = self.file()
        assert file is not None
        return file.path


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pass:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage_snapshot, "_current", None)
    return Pass(tmp_path)


def change_weight(opened: Pass) -> None:
    with torch.no_grad():
        opened.networks[0].body.bias[0] += 1


def change_statistics(opened: Pass) -> None:
    opened.networks[0].head.running_var[0] += 1


CHANGES: dict[str, Callable[[Pass], object]] = {
    "a weight": change_weight,
    "running statistics": change_statistics,
    "networks": lambda opened: opened.networks.append(opened.networks[0]),
    "ids": lambda opened: setattr(opened, "ids", IDS[1:]),
    "batch size": lambda opened: setattr(opened, "batch_size", 8),
    "parameters": lambda opened: opened.raw["score"].update(batch_size=5),
    "images": lambda _: Path("images.arrow").write_text("others"),
    "features": lambda opened: setattr(opened, "requested", RequestedOutputs(features=True)),
    "pixels": lambda opened: setattr(opened, "requested", RequestedOutputs(subsample=True)),
    "dropout": lambda opened: setattr(opened, "requested", RequestedOutputs(dropout_factors=torch.ones(2, 3))),
    "predictor": lambda opened: setattr(opened, "requested", RequestedOutputs(loss_predictor=LossPredictor([3], 2))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_pass_that_differs_in_anything_has_another_file(opened: Pass, change: Callable[[Pass], object]) -> None:
    before = opened.path()
    assert opened.path() == before
    change(opened)
    assert opened.path() != before


def test_pass_of_other_code_has_another_file(opened: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened.path()
    monkeypatch.setattr(pass_files, "code_at_start", lambda: {"codline/learning/inference.py": "other"})
    assert opened.path() != before


def test_nothing_is_kept_outside_a_stage_or_of_images_that_the_stage_writes(opened: Pass) -> None:
    assert opened.file() is None
    opened.images = Path("written.arrow")
    opened.begin()
    assert opened.file() is None


def test_batch_is_not_kept_once_the_images_have_changed(opened: Pass) -> None:
    path = opened.path()
    Path("images.arrow").write_text("others")
    with pytest.raises(DataError, match=r"^images\.arrow changed while score@c1 ran"):
        PassFile(path).append(batch_of(IDS))
    assert not path.exists()


def test_files_of_the_oldest_passes_of_a_stage_are_deleted(opened: Pass) -> None:
    paths = []
    for batch_size in range(2, 4 + state_directory.KEPT_PASSES):
        opened.batch_size = batch_size
        paths.append(opened.path())
        paths[-1].touch()
    assert sorted(paths[0].parent.iterdir()) == sorted(paths[2:])
    state_directory.delete_passes("score@c1")
    assert not paths[0].parent.exists()
