"""Fixtures: campaigns with an empty MLflow database of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codline.runtime import state_directory
from codline.runtime.campaign_identity import CampaignIdentity
from tests.tracking.mlflow_view import FIRST_START, TRACKING_ON, snapshot, sync_cycles
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
    """The workspace is the current directory; its stages ran one after the other, two seconds apart."""
    shutil.copy(database, workspace.root / "mlflow.db")
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace.root}/mlflow.db")
    key = CampaignIdentity(workspace.pipeline.params).key
    for position, name in enumerate(workspace.pipeline.stage_names()):
        note = {"seconds": 1.5, "started": FIRST_START + 2 * position, "campaign": key}
        state_directory.write_note("seconds", name, note)
