"""Fixtures: campaigns with an empty MLflow database of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codline.runtime import state_directory
from tests.tracking.mlflow_view import TRACKING_ON, snapshot, sync_cycles
from tests.workspace import Workspace


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's empty tables: creating them takes seconds, so every test gets a copy."""
    directory = tmp_path_factory.mktemp("mlflow")
    command = [sys.executable, "-m", "codline.tracking", "init"]
    environment = os.environ | TRACKING_ON | {"MLFLOW_EXPERIMENT_NAME": "another"}
    subprocess.run(command, cwd=directory, env=environment, check=True)
    return directory / "mlflow.db"


@pytest.fixture
def tracked(workspace: Workspace, database: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    use_copy_of(database, workspace, monkeypatch)
    return workspace


@pytest.fixture(scope="session")
def snapshot_of_c1(campaign: Path, database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What MLflow shows after one uninterrupted sync of the first cycle."""
    with pytest.MonkeyPatch.context() as patch:
        workspace = Workspace(campaign).copy_to(tmp_path_factory.mktemp("uninterrupted") / "campaign")
        patch.chdir(workspace.root)
        use_copy_of(database, workspace, patch)
        sync_cycles(workspace, "c1")
        return snapshot()


def use_copy_of(database: Path, workspace: Workspace, patch: pytest.MonkeyPatch) -> None:
    """The workspace is the current directory; its stages have timings."""
    shutil.copy(database, workspace.root / "mlflow.db")
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace.root}/mlflow.db")
    for name in workspace.pipeline.stage_names():
        state_directory.write_note("seconds", name, {"seconds": 1.5})
