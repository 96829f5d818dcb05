"""DVC's run cache: what a kill leaves of an entry does not disturb the next run."""

import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from codline.orchestration.dvc_stages import DvcStages
from tests.project import BIN

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


def test_dvc_itself_fails_on_an_empty_directory(here: Path) -> None:
    """When it no longer does, codline/orchestration/run_cache.py can be removed."""
    for entry in folder(here).iterdir():
        entry.unlink()
    done = subprocess.run([BIN / "dvc", "repro"], capture_output=True, text=True, check=False)
    assert "ERROR: failed to reproduce 'double': join() argument must be str" in done.stderr
