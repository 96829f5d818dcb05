"""The directory of a campaign: one campaign at a time, repaired after a kill."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from codline.core.errors import BusyError
from codline.orchestration.workspace import open_workspace
from tests.project import Project

HOLD_LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("4711")
file.flush()
print("locked", flush=True)
time.sleep(60)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".codline").mkdir()
    (tmp_path / "dvc.yaml").touch()
    return tmp_path


def start_lock_holder(path: Path) -> subprocess.Popen[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_open_workspace_refuses_a_second_campaign_and_names_its_process(directory: Path) -> None:
    with start_lock_holder(directory / ".codline/campaign.lock") as process:
        expected = r"another campaign \(process 4711\) is running in this directory"
        with pytest.raises(BusyError, match=expected), open_workspace():
            pass
        process.kill()


def test_open_workspace_succeeds_after_the_other_campaign_was_killed_and_can_be_nested(directory: Path) -> None:
    with start_lock_holder(directory / ".codline/campaign.lock") as process:
        process.kill()
    with open_workspace() as outer, open_workspace() as inner:
        assert inner is outer


def test_run_names_the_dvc_command_that_holds_the_repository_and_status_works(project: Project) -> None:
    with start_lock_holder(project.root / ".dvc/tmp/lock") as process:
        done = project.run("codline", "run")
        assert "Everything is up to date." in project.must("codline", "status")
        process.kill()
    assert done.returncode == BusyError.exit_code
    assert "codline: another DVC command (process" in done.stderr
    assert done.stderr.count("\n") == 1


def test_serve_names_a_port_that_is_in_use(untouched: Project) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        untouched.environment["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
        done = untouched.run("codline", "serve")
    assert done.returncode == BusyError.exit_code
    assert done.stderr == (
        f"codline: port {port} cannot be used (Address already in use); stop what listens there,"
        " or choose another port\n"
    )
