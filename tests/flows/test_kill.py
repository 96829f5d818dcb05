"""A campaign that is killed at any instant and run again ends with the same bytes."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.project import Project, kill, running_commands

LONGEST_WAIT = 3.0  # seconds before a kill, from the start of the campaign or of its first stage


def run_and_kill(projects: list[Project], kills: int, rng: random.Random) -> int:
    """Start the campaign and kill it, up to `kills` times or until it finishes; returns the number of kills.

    One kill in four may hit the start-up, the others hit stages and what lies between them.
    """
    for done in range(kills):
        project = projects[done % len(projects)]
        process = project.start("codline", "run")
        has_ended = partial(has_process_ended, process)
        if rng.random() > 0.25:
            wait_until(lambda root=project.root, ended=has_ended: ended() or is_running_a_stage(root), 60)
        wait_until(has_ended, rng.uniform(0, LONGEST_WAIT))
        if process.poll() is not None:
            return done
        kill(process)
        # A process that is killed while it waits for the disk ends once the disk has answered.
        wait_until(lambda root=project.root: not running_commands(root), 60)
        assert running_commands(project.root) == []
    return kills


def has_process_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def is_running_a_stage(root: Path) -> bool:
    return any("-m stages " in command for command in running_commands(root))


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def check_kills(project: Project, finished: Project, kills: int, fork_server_environment: dict[str, str]) -> None:
    """One run in four starts a fork server of its own, often killed while it imports; the others use the tests' one."""
    forked = project.with_environment(**fork_server_environment)
    projects = [project, forked, forked, forked]
    rng = random.Random(kills)
    killed_times = 0
    while killed_times < kills:
        killed_times += run_and_kill(projects, kills - killed_times, rng)
        forked.must("codline", "run")
        assert project.lock == finished.lock
        assert project.must("dvc", "status", "--json").strip() == "{}"
        if killed_times < kills:
            remove_results(project.root)


def remove_results(root: Path) -> None:
    (root / "dvc.lock").unlink()
    for name in ("data", "cycles", "report", ".codline", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(root / name, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_campaign_killed_twenty_times_ends_with_the_same_bytes(
    alone: Project, finished: Project, fork_server_environment: dict[str, str]
) -> None:
    check_kills(alone, finished, 20, fork_server_environment)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_stops_a_campaign_in_any_stage(
    alone: Project, finished: Project, fork_server_environment: dict[str, str]
) -> None:
    for stage in ("train@c1", "score@c1"):
        process = alone.start("codline", "run")
        name, _, cycle = stage.partition("@")
        deadline = time.monotonic() + 90
        while not any(f"stages {name} --cycle {cycle}" in command for command in running_commands(alone.root)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert alone.output.rstrip().endswith("stopped; run it again to go on from here")
        assert running_commands(alone.root) == []
    alone.with_environment(**fork_server_environment).must("codline", "run")
    assert alone.lock == finished.lock
