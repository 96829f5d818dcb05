"""Commands beside a running stage: status shows it, and a second campaign or `dvc repro` is refused, not mixed in."""

import time

import pytest

from codline.core.errors import BusyError
from tests.project import Project, kill, running_commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENDLESS = "train.epochs=100000"


def wait_for_progress(project: Project) -> None:
    deadline = time.monotonic() + 120
    while not (project.root / ".codline/progress/train@c1.json").exists():
        assert time.monotonic() < deadline, project.output
        time.sleep(0.05)


def wait_for_end(project: Project) -> None:
    deadline = time.monotonic() + 60
    while commands := running_commands(project.root):
        assert time.monotonic() < deadline, commands
        time.sleep(0.1)


def check_status(project: Project, process: int) -> None:
    lock = project.lock
    status = project.must("codline", "status")
    assert f"train@c1 is running (process {process}): epochs " in status
    assert "stages to do\n" in status
    assert project.lock == lock


def test_status_works_while_a_stage_runs_and_dvc_repro_and_a_campaign_refuse_each_other(
    project: Project, finished: Project
) -> None:
    campaign = project.start("codline", "run", "-S", ENDLESS)
    try:
        check_beside_campaign(project, campaign.pid)
        assert campaign.poll() is None
    finally:
        campaign.terminate()  # which ends the stage, too
    assert campaign.wait(60) == 143

    for note in (project.root / ".codline/progress").glob("*.json"):  # of the stage that was ended
        note.unlink()
    dvc = project.start("dvc", "repro")
    try:
        check_beside_dvc(project, dvc.pid)
        assert dvc.poll() is None
    finally:
        kill(dvc)
    wait_for_end(project)

    project.must("codline", "run", "-S", "train.epochs=2")
    assert project.lock == finished.lock


def check_beside_campaign(project: Project, process: int) -> None:
    wait_for_progress(project)
    check_status(project, process)
    busy = f"codline: another campaign (process {process}) is running in this directory; wait for it or stop it\n"
    second = project.run("codline", "run")
    assert (second.returncode, second.stderr) == (BusyError.exit_code, busy)
    refused = project.run("dvc", "repro", "--single-item", "--force", "merge@c1")
    assert busy in refused.stderr
    assert "exited with 6" in refused.stderr
    assert "is busy" in project.run("dvc", "repro").stderr  # DVC's own lock of the files of train@c1


def check_beside_dvc(project: Project, process: int) -> None:
    wait_for_progress(project)
    check_status(project, process)
    second = project.run("codline", "run")
    running = f"codline: `dvc repro` (process {process}) is running stages in this directory; wait for it or stop it\n"
    assert (second.returncode, second.stderr) == (BusyError.exit_code, running)
