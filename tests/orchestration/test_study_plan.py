"""The plan of a study: checked before anything runs, run by one process at a time; worktrees keep their dvc.lock."""

import shutil
from pathlib import Path

import pytest

from codline.core.errors import BusyError, UserError
from codline.orchestration import worktrees
from codline.orchestration.study_grid import Study
from codline.orchestration.study_plan import StudyPlan, lock_study
from tests.project import Project, clone_with_small_campaign
from tests.tiny_study import TINY

CODE_FILE = "codline/core/files.py"


@pytest.fixture
def clone(tmp_path: Path) -> Project:
    """A clone with the study tiny, and without a Prefect server: nothing here gets as far as a flow."""
    project = clone_with_small_campaign(tmp_path / "codline", CODLINE_TRACKING="off")
    (project.root / "studies/tiny.yaml").write_text(TINY)
    return project


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "# edited\n")


def params_with_seed(seed: int) -> str:
    return f"seed: {seed}\nprepare: {{dataset: {{name: digits}}}}\n"


def test_lock_study_refuses_a_second_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = StudyPlan(Study(name="tiny", title="", arms={"a": {}}, seeds=[0]), [], "", "")
    with lock_study(plan), pytest.raises(BusyError, match="study tiny is running already"), lock_study(plan):
        pass


def test_study_of_uncommitted_code_is_refused_before_anything_runs(clone: Project) -> None:
    edit(clone.root / CODE_FILE)
    done = clone.run("codline", "study", "tiny")
    assert done.returncode == UserError.exit_code
    sentence = "not committed as it is; a study runs committed code, so commit or stash it first"
    assert done.stderr == f"codline: {CODE_FILE}: {sentence}\n"
    assert not (clone.root / ".codline/studies/tiny").exists()


def test_study_with_an_invalid_arm_is_refused_before_anything_runs(clone: Project) -> None:
    (clone.root / "studies/tiny.yaml").write_text(TINY.replace("entropy", "entropie"))
    done = clone.run("codline", "study", "tiny")
    assert done.returncode == UserError.exit_code
    sentence = "params.yaml: score.strategy.name: unknown strategy 'entropie'; did you mean entropy?"
    assert done.stderr == f"codline: study tiny: arm entropie: {sentence}\n"
    folder = clone.root / ".codline/studies/tiny"
    assert list(folder.iterdir()) == [folder / "checked"]


def test_study_does_not_wait_for_people(clone: Project) -> None:
    done = clone.run("codline", "study", "tiny", "-S", "annotate.annotator={name: people}")
    assert done.returncode == UserError.exit_code
    found = "study tiny: arm entropy: annotate.annotator: found people"
    assert done.stderr == f"codline: {found}, expected simulated: a study does not wait for labels\n"


def test_prepare_worktree_keeps_the_dvc_lock_when_the_commit_changes(
    clone: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone.root)
    worktree = clone.root / ".codline/studies/tiny/a-s0"
    cache = clone.root / "cache"
    worktrees.prepare_worktree(worktree, worktrees.head_commit(), params_with_seed(1), cache)
    assert not (worktree / "dvc.lock").exists()
    (worktree / "dvc.lock").write_text("mine")
    edit(clone.root / CODE_FILE)
    clone.must("git", "commit", "-qam", "edit")
    worktrees.prepare_worktree(worktree, worktrees.head_commit(), params_with_seed(2), cache)
    assert (worktree / "dvc.lock").read_text() == "mine"
    assert (worktree / "params.yaml").read_text() == params_with_seed(2)
    assert (worktree / CODE_FILE).read_text().endswith("# edited\n")
    assert clone.must("dvc", "cache", "dir").strip() == str(clone.root / ".dvc/cache")
    shutil.rmtree(worktree)
    worktrees.prepare_worktree(worktree, worktrees.head_commit(), params_with_seed(3), cache)
    assert (worktree / "params.yaml").read_text() == params_with_seed(3)
