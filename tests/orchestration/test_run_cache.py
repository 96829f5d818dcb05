"""What a kill leaves of DVC's memory of a run is not in the way of the next one."""

import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from codline.orchestration import workspace
from tests.project import BIN

PIPELINE = """stages:
  double:
    cmd: echo run >> ../runs && cat single single > double
    deps: [single]
    outs: [double]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DVC repository with one stage, run once, and then forgotten by all but the memory of runs."""
    monkeypatch.setenv("CODLINE_WARM", "")
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    Repo.init(no_scm=True).close()
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "single").write_text("once\n")
    assert workspace.reproduce("double")
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


def test_a_run_that_is_remembered_is_not_run_again(here: Path) -> None:
    assert workspace.reproduce("double")
    assert (here / "double").read_text() == "once\nonce\n"
    assert runs(here) == 1


@pytest.mark.parametrize("left", [None, "", "cmd: echo\n", "cmd: echo\nouts:\n- path: other\n"])
def test_a_kill_before_the_entry_was_there_costs_a_run_and_no_more(here: Path, left: str | None) -> None:
    place = folder(here)
    shutil.rmtree(place)
    place.mkdir()
    if left is not None:
        (place / ".half.tmp").write_text(left)
    assert workspace.reproduce("double")
    assert runs(here) == 2
    forget(here)
    assert workspace.reproduce("double")
    assert (here / "double").read_text() == "once\nonce\n"
    assert runs(here) == 2


def test_half_an_entry_beside_a_whole_one_is_passed_over(here: Path) -> None:
    (folder(here) / ".half.tmp").write_text("cmd: echo\nouts:\n- path: other\n")
    assert workspace.reproduce("double")
    assert runs(here) == 1


def test_dvc_by_itself_fails_on_a_folder_without_an_entry(here: Path) -> None:
    """When it no longer does, flows/memory.py can go."""
    for entry in folder(here).iterdir():
        entry.unlink()
    done = subprocess.run([BIN / "dvc", "repro"], capture_output=True, text=True, check=False)
    assert "ERROR: failed to reproduce 'double': join() argument must be str" in done.stderr
