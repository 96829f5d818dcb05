"""Files appear whole or not at all, also when the disk is full."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from codline.core import files
from codline.core.errors import DataError, StorageError
from codline.data import image_store, tables
from codline.learning import model_file

ROWS = 20_000


def scores_table() -> pa.Table:
    return pa.table([np.arange(ROWS), np.random.default_rng(0).random(ROWS)], schema=tables.SCORES)


def write_scores_as_csv(path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("score", pa.float64())])
    tables.write_csv(scores_table().cast(schema), schema, path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: files.write_text(path, "x" * 10**6),
    "parquet": lambda path: tables.write(scores_table(), tables.SCORES, path),
    "csv": write_scores_as_csv,
    "arrow": lambda path: image_store.write(path, np.arange(5000), np.ones((5000, 1, 16, 16), np.uint8)),
    "safetensors": lambda path: model_file.write_tensors(path, {"w": torch.ones(10**6)}, {}),
}
each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB, where we may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = None
    with contextlib.suppress(FileNotFoundError):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted is None or mounted.returncode:
        pytest.skip("mounting a file system takes rights that we do not have here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@each_writer
def test_a_full_disk_is_said_in_one_sentence_and_leaves_nothing(
    small_disk: Path, write: Callable[[Path], None]
) -> None:
    path = small_disk / "cycles" / "out"
    with pytest.raises(StorageError) as refused:
        write(path)
    assert (
        str(refused.value)
        == f"{path}: cannot be written: No space left on device; free some space and run again, nothing was left half-written"
    )
    assert refused.value.exit_code == 5
    assert not list(path.parent.iterdir())


@each_writer
def test_a_full_disk_leaves_the_old_file_as_it_was(small_disk: Path, write: Callable[[Path], None]) -> None:
    path = small_disk / "out"
    path.write_text("old")
    with pytest.raises(StorageError):
        write(path)
    assert path.read_text() == "old"


def test_a_full_device_is_a_storage_error_without_any_rights(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="out: cannot be written: No space left on device"),
        files.whole(tmp_path / "out") as part,
    ):
        part.symlink_to("/dev/full")
        part.write_text("x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mishap", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_half_written_stays_after_a_mishap(tmp_path: Path, mishap: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(mishap), files.whole(path) as part:
        part.write_text("half of")
        raise mishap
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_takes_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "out"
    with files.whole(path) as part:
        part.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_kill_left_behind_is_overwritten(tmp_path: Path) -> None:
    with files.whole(tmp_path / "out") as part:
        pass_on = part
        part.write_text("first")
    pass_on.write_text("left by a kill, and longer than what comes")
    files.write_text(tmp_path / "out", "second")
    assert (tmp_path / "out").read_text() == "second"
    assert not pass_on.exists()


def test_other_trouble_with_a_file_is_not_called_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file") as refused:
        files.write_text(tmp_path / "file" / "out", "x")
    assert not isinstance(refused.value, StorageError)


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value = {"names": ["für", "0"], "number": 0.1 + 0.2, "nothing": None}
    files.write_json(tmp_path / "out.json", value)
    assert files.read_json(tmp_path / "out.json") == value


def test_broken_json_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"a": ')
    with pytest.raises(DataError, match=r"out\.json: not valid JSON"):
        files.read_json(tmp_path / "out.json")
    with pytest.raises(DataError, match="none: not found"):
        files.read_json(tmp_path / "none")


def test_a_digest_is_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.digest(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
