"""Inputs: manifests of others are removed, and a study's worktrees have links to them."""

from pathlib import Path

import pytest

from codline.orchestration import inputs
from tests.workspace import Workspace, create_workspace


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = create_workspace(tmp_path / "project")
    monkeypatch.chdir(workspace.root)
    return workspace


def test_manifests_of_other_inputs_are_removed(here: Workspace) -> None:
    Path("photos").mkdir()
    here.change(inputs={"images": "photos"})
    for name in ("images", "labels"):
        Path(f"data/inputs/{name}.parquet").touch()
    inputs.remove_other_manifests()
    assert [path.name for path in Path("data/inputs").iterdir()] == ["images.parquet"]


def test_link_inputs_makes_relative_paths_valid_in_a_worktree(here: Workspace) -> None:
    for name in ("raw", "a/photos", "b/masks"):
        Path(name).mkdir(parents=True)
    Path("labels.csv").touch()
    dataset = {"name": "folder", "path": "a/photos", "labels": "labels.csv", "test": 0.2, "size": None}
    params = {"prepare": {"dataset": dataset}, "inputs": {"masks": "b/masks", "elsewhere": str(here.root)}}
    for _ in range(2):
        inputs.link_inputs(params, here.root / "worktree")
    links = {"raw", "a/photos", "b/masks", "labels.csv"}
    found = {path for path in (here.root / "worktree").rglob("*") if path.is_symlink()}
    assert {str(path.relative_to(here.root / "worktree")) for path in found} == links
    assert all(path.resolve() == here.root / path.relative_to(here.root / "worktree") for path in found)
