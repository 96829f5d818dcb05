"""Atomic writes: a file is complete or absent, also on a full disk."""

import contextlib
import os
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
    "parquet": lambda path: tables.write_table(scores_table(), tables.SCORES, path),
    "csv": write_scores_as_csv,
    "arrow": lambda path: image_store.write_images(path, np.arange(5000), np.ones((5000, 1, 16, 16), np.uint8)),
    "safetensors": lambda path: model_file.write_tensors(path, {"w": torch.ones(10**6)}, {}),
}
each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB; skips the test without the permission to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = None
    with contextlib.suppress(FileNotFoundError):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted is None or mounted.returncode:
        pytest.skip("no permission to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@each_writer
def test_writers_report_a_full_disk_and_leave_nothing(small_disk: Path, write: Callable[[Path], None]) -> None:
    path = small_disk / "cycles" / "out"
    with pytest.raises(StorageError) as refused:
        write(path)
    reason = f"{path}: cannot be written: No space left on device"
    assert str(refused.value) == f"{reason}; free some space and run it again"
    assert refused.value.exit_code == 5
    assert not list(path.parent.iterdir())


@each_writer
def test_writers_keep_the_old_file_on_a_full_disk(small_disk: Path, write: Callable[[Path], None]) -> None:
    path = small_disk / "out"
    path.write_text("old")
    with pytest.raises(StorageError):
        write(path)
    assert path.read_text() == "old"


def test_atomic_write_reports_a_full_device(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="out: cannot be written: No space left on device"),
        files.atomic_write(tmp_path / "out") as part,
    ):
        part.symlink_to("/dev/full")
        part.write_text("x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_atomic_write_leaves_nothing_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(error), files.atomic_write(path) as part:
        part.write_text("half of")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_creates_the_file_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "out"
    with files.atomic_write(path) as part:
        part.write_text("complete")
        assert not path.exists()
    assert path.read_text() == "complete"
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and directories on which fsync was called, by the name that they had then."""
    paths, fsync = list[Path](), os.fsync

    def record(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_atomic_write_syncs_the_file_then_its_directory_and_those_that_it_created(
    tmp_path: Path, synced: list[Path]
) -> None:
    files.write_text(tmp_path / "new" / "folder" / "out", "x")
    folder = tmp_path / "new" / "folder"
    assert synced == [folder / ".out.part", folder, folder.parent, tmp_path]
    synced.clear()
    files.write_text(folder / "out", "y")
    assert synced == [folder / ".out.part", folder]
    synced.clear()
    files.write_text(folder / "out", "z", durable=False)
    assert synced == []


def test_atomic_directory_syncs_everything_in_it_before_it_gets_its_name(tmp_path: Path, synced: list[Path]) -> None:
    with files.atomic_directory(tmp_path / "report") as part:
        (part / "inner").mkdir()
        (part / "inner" / "a").write_text("a")
        (part / "b").write_text("b")
    assert synced == [part / "inner" / "a", part / "inner", part / "b", part, tmp_path]
    assert (tmp_path / "report" / "inner" / "a").read_text() == "a"


def test_atomic_write_overwrites_what_a_kill_left_behind(tmp_path: Path) -> None:
    with files.atomic_write(tmp_path / "out") as part:
        leftover = part
        part.write_text("first")
    leftover.write_text("left by a kill, and longer than what comes")
    files.write_text(tmp_path / "out", "second")
    assert (tmp_path / "out").read_text() == "second"
    assert not leftover.exists()


def test_atomic_write_raises_other_errors_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file") as refused:
        files.write_text(tmp_path / "file" / "out", "x")
    assert not isinstance(refused.value, StorageError)


def test_read_json_returns_what_write_json_wrote(tmp_path: Path) -> None:
    value = {"names": ["für", "0"], "number": 0.1 + 0.2, "nothing": None}
    files.write_json(tmp_path / "out.json", value)
    assert files.read_json(tmp_path / "out.json") == value


def test_read_json_refuses_invalid_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"a": ')
    with pytest.raises(DataError, match=r"out\.json: not valid JSON"):
        files.read_json(tmp_path / "out.json")
    with pytest.raises(DataError, match="none: not found"):
        files.read_json(tmp_path / "none")


def test_user_path_expands_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.user_path("~/photos") == tmp_path / "photos"
    assert files.user_path("a/~/b") == Path("a/~/b")
    assert files.user_path("~no-such-user/a") == Path("~no-such-user/a")


def test_file_sha256_hashes_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.file_sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
