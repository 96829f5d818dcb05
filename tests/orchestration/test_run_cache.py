"""DVC's run cache: neither what a kill leaves of an entry, nor damaged outputs, nor edits disturb the next run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from codline.core.errors import DataError
from codline.orchestration.dvc_stages import DvcStages
from tests.bits import flip_bit
from tests.project import BIN
from tests.workspace import REPOSITORY

PIPELINE = """stages:
  double:
    cmd: echo run >> ../runs && cat single single > double
    deps: [single]
    outs: [double]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DVC repository with one stage, run once, whose results are then removed from everywhere but the run cache."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    Repo.init(no_scm=True).close()
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "single").write_text("once\n")
    assert DvcStages().reproduce("double")
    forget(root)
    return root


def forget(root: Path) -> None:
    (root / "dvc.lock").unlink()
    (root / "double").unlink()


def folder(root: Path) -> Path:
    (found,) = (root / ".dvc/cache/runs").glob("*/*")
    return found


def runs(root: Path) -> int:
    return (root.parent / "runs").read_text().count("run")


def test_run_cache_restores_a_run_without_running_it(here: Path) -> None:
    assert DvcStages().reproduce("double")
    assert (here / "double").read_text() == "once\nonce\n"
    assert runs(here) == 1


@pytest.mark.parametrize("left", [None, "", "cmd: echo\n", "cmd: echo\nouts:\n- path: other\n"])
def test_run_cache_treats_an_empty_directory_as_a_miss(here: Path, left: str | None) -> None:
    place = folder(here)
    shutil.rmtree(place)
    place.mkdir()
    if left is not None:
        (place / ".half.tmp").write_text(left)
    assert DvcStages().reproduce("double")
    assert runs(here) == 2
    forget(here)
    assert DvcStages().reproduce("double")
    assert (here / "double").read_text() == "once\nonce\n"
    assert runs(here) == 2


def test_run_cache_ignores_a_partial_entry(here: Path) -> None:
    (folder(here) / ".half.tmp").write_text("cmd: echo\nouts:\n- path: other\n")
    assert DvcStages().reproduce("double")
    assert runs(here) == 1


def test_run_cache_does_not_restore_a_damaged_output(here: Path) -> None:
    """DVC would: it trusts objects that are read-only."""
    (cached,) = (here / ".dvc/cache/files/md5").glob("*/*")
    flip_bit(cached, 3)
    assert DvcStages().reproduce("double")
    assert (here / "double").read_text() == "once\nonce\n"
    assert runs(here) == 2
    assert cached.read_text() == "once\nonce\n"


def test_dvc_itself_restores_a_damaged_output(here: Path) -> None:
    """When it no longer does, RunCache need not check what it restores."""
    (cached,) = (here / ".dvc/cache/files/md5").glob("*/*")
    flip_bit(cached, 3)
    subprocess.run([BIN / "dvc", "repro", "-q"], check=True)
    assert runs(here) == 1
    assert (here / "double").read_text() != "once\nonce\n"


SNAPSHOT = """
from pathlib import Path
from codline.runtime import stage_snapshot
stage_snapshot.begin("double", Path("params.yaml"), {"seed": 0}, {"seed"}, [Path("single")])
"""


@pytest.mark.parametrize(
    ("edit", "change"),
    [("echo more >> single", "single changed"), ("echo 'seed: 1' > params.yaml", "seed changed from 0 to 1")],
)
def test_flow_refuses_an_edit_after_the_stage_s_own_check(
    here: Path, edit: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC hashes after the command has ended: here the command itself makes the edit, after its check."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    shutil.rmtree(here / ".dvc/cache/runs")
    (here / "params.yaml").write_text("seed: 0\n")
    (here / "check.py").write_text(SNAPSHOT)
    command = f"python check.py && cat single single > double && {edit}"
    pipeline = {"stages": {"double": {"cmd": command, "deps": ["single"], "params": ["seed"], "outs": ["double"]}}}
    with (here / "dvc.yaml").open("w") as file:
        YAML().dump(pipeline, file)
    stages = DvcStages()
    for _ in range(2):  # a refused result does not count as up to date
        (here / "params.yaml").write_text("seed: 0\n")
        with pytest.raises(DataError, match=f"{change} while double ran; its result is not recorded"):
            stages.reproduce("double")
        assert not (here / "dvc.lock").exists()
        assert not (here / "double").exists()
        assert not (here / ".dvc/cache/runs").exists()


def test_dvc_itself_fails_on_an_empty_directory(here: Path) -> None:
    """When it no longer does, codline/orchestration/run_cache.py can be removed."""
    for entry in folder(here).iterdir():
        entry.unlink()
    done = subprocess.run([BIN / "dvc", "repro"], capture_output=True, text=True, check=False)
    assert "ERROR: failed to reproduce 'double': join() argument must be str" in done.stderr
