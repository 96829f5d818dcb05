"""MLflow's database: one that is broken is set aside, and the campaign is logged again from its files."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.mlflow_view import TRACKING_ON, snapshot, sync_cycles
from tests.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import


def initialize(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "codline.tracking", "init"]
    environment = os.environ | TRACKING_ON
    environment.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.Popen(command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True)


def test_half_migrated_database_is_set_aside_and_the_campaign_is_logged_again(
    tracked: Workspace, snapshot_of_c1: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Its steps are done, but their numbers are not noted, as after a kill."""
    with closing(sqlite3.connect("mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        database.execute("PRAGMA user_version = 0")
    sync_cycles(tracked, "c1")
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "already exists), so it was set aside as mlflow.db.broken-1" in warning
    assert warning.endswith("; `codline track` logs this campaign again")
    assert snapshot() == snapshot_of_c1


@pytest.mark.slow
def test_kill_while_the_database_is_created_does_not_matter(tmp_path: Path) -> None:
    part = tmp_path / "mlflow.db.part"
    process = initialize(tmp_path)
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 300_000) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert part.exists()
    assert not (tmp_path / "mlflow.db").exists()
    process = initialize(tmp_path)
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert not part.exists()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("SELECT name FROM experiments ORDER BY name").fetchall() == [("Default",), ("codline",)]
