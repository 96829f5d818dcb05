"""codline verify: every flipped bit is found, and repaired where a copy is whole."""

import os
from pathlib import Path

import pytest
from dvc.repo import Repo
from hypothesis import HealthCheck, given, settings, strategies as st
from typer.testing import CliRunner

from codline.cli.main import app
from codline.core.errors import DataError
from codline.orchestration import dvc_lock
from codline.orchestration.dvc_stages import DvcStages
from codline.orchestration.verification import Verification, repair
from codline.runtime.object_store import ObjectStore
from codline.runtime.recorded_outputs import RecordedOutput, read_recorded_outputs
from tests.bits import flip_bit
from tests.workspace import REPOSITORY

PIPELINE = """stages:
  make:
    cmd: mkdir -p folder && echo one > folder/a && echo two > folder/b && echo three > file
    deps: [source]
    outs: [folder, file]
"""
FILES = ("file", "folder/a", "folder/b")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A DVC repository with a file and a directory as outputs, as the current directory; returns its cache."""
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    Path("dvc.yaml").write_text(PIPELINE)
    Path("source").write_text("")
    assert DvcStages().reproduce("make")
    return ObjectStore(Path(".dvc/cache/files/md5"))


def damaged(store: ObjectStore) -> list[tuple[str, str, str]]:
    files = Verification(store).check_outputs(read_recorded_outputs().values())
    return [(str(file.path), file.in_workspace, file.in_cache) for file in files if file.is_damaged]


def repair_all(store: ObjectStore) -> list[str]:
    files = list(Verification(store).check_outputs(read_recorded_outputs().values()))
    return [repair(file, store) for file in files if file.is_damaged]


def everything(store: ObjectStore) -> dict[Path, bytes]:
    paths = [*map(Path, FILES), *(path for path in store.root.glob("*/*"))]
    return {path: path.read_bytes() for path in paths}


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_verify_finds_every_flipped_bit_and_repair_restores_the_file(store: ObjectStore, data: st.DataObject) -> None:
    before = everything(store)
    path = data.draw(st.sampled_from(sorted(before)))
    flip_bit(path, data.draw(st.integers(0, 8 * len(before[path]) - 1)))
    assert len(damaged(store)) == 1
    (action,) = repair_all(store)
    assert action.startswith("restored")
    assert everything(store) == before
    assert damaged(store) == []


@pytest.mark.parametrize("name", FILES)
def test_repair_removes_a_file_without_a_whole_copy_and_the_next_run_makes_it_again(
    store: ObjectStore, name: str
) -> None:
    before = everything(store)
    md5 = {str(file.path): file.md5 for file in Verification(store).check_outputs(read_recorded_outputs().values())}
    for path in (Path(name), store.path(md5[name])):
        flip_bit(path, 0)
    assert damaged(store) == [(name, "damaged", "damaged")]
    assert repair_all(store) == ["removed: no copy is whole"]
    assert not Path(name).exists()
    assert damaged(store) == []
    assert DvcStages().reproduce("make")
    assert everything(store) == before


def test_verify_counts_results_that_are_not_here_as_absent(store: ObjectStore) -> None:
    for path in everything(store):
        path.unlink()
    assert damaged(store) == []
    result = CliRunner().invoke(app, ["verify"])
    assert result.exit_code == 0, result.output


def test_verify_command_exits_with_3_and_names_the_file(store: ObjectStore) -> None:
    flip_bit(Path("folder/b"), 1)
    result = CliRunner().invoke(app, ["verify"])
    assert isinstance(result.exception, DataError)
    assert str(result.exception) == "1 of 4 files are damaged; `codline verify --repair` restores them"
    assert "folder/b" in result.output
    repaired = CliRunner().invoke(app, ["verify", "--repair"])
    assert repaired.exit_code == 0
    assert "restored from DVC's cache" in " ".join(repaired.output.split())
    assert Path("folder/b").read_text() == "two\n"


def test_verify_command_needs_a_dvc_lock(store: ObjectStore) -> None:
    Path("dvc.lock").unlink()
    assert "dvc.lock: not found" in str(CliRunner().invoke(app, ["verify"]).exception)


def test_flow_syncs_every_cached_output_before_dvc_lock_names_it(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync, write_lock = set[Path](), os.fsync, dvc_lock.write_lock
    at_lock = list[set[Path]]()
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.add(Path(f"/proc/self/fd/{file}").readlink()), fsync(file))[1]
    )
    monkeypatch.setattr(dvc_lock, "write_lock", lambda text: (at_lock.append({*synced}), write_lock(text))[1])
    Path("source").write_text("another")
    assert DvcStages().reproduce("make")
    objects = [path.resolve() for path in store.root.glob("*/*")]
    assert len(objects) == 4
    assert {*objects, *(path.parent for path in objects), store.root.resolve()} <= at_lock[0]


def test_recorded_outputs_are_those_that_dvc_reads() -> None:
    """The lines are read without a YAML parser: for the project's own dvc.lock the result is that of DVC."""
    with Repo(str(REPOSITORY)) as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}
        expected = {
            out.def_path: RecordedOutput(name, out.def_path, out.hash_info.value)
            for name, stage in stages.items()
            for out in stage.outs
        }
    assert read_recorded_outputs(REPOSITORY / "dvc.lock") == expected
