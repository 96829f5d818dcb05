"""Killable: SIGKILL at any instant, run again, and nothing shows."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import Project, killed, survivors

LONGEST = 3.0  # seconds until the kill, from the start or from the first stage's


def interrupted(projects: list[Project], kills: int, chance: random.Random) -> int:
    """Start the campaign and kill it, so many times or until it is through; say how often it was killed.

    One kill in four may hit the start of everything, the others hit stages and what is between them.
    """
    for done in range(kills):
        project = projects[done % len(projects)]
        process = project.start("codline", "run")
        if chance.random() > 0.25:
            wait(60, lambda process=process, root=project.root: process.poll() is not None or at_work(root))
        wait(chance.uniform(0, LONGEST), lambda process=process: process.poll() is not None)
        if process.poll() is not None:
            return done
        killed(process)
        wait(5, lambda root=project.root: not survivors(root))
        assert survivors(project.root) == []
    return kills


def at_work(root: Path) -> bool:
    return any("-m stages." in command for command in survivors(root))


def wait(seconds: float, enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not enough() and time.monotonic() < deadline:
        time.sleep(0.02)


def check(project: Project, finished: Project, kills: int, warm: dict[str, str]) -> None:
    """One run in four has a warm process of its own, often killed while it still imports; the others fork their stages from the tests'."""
    forked = project.having(**warm)
    projects = [project, forked, forked, forked]
    chance = random.Random(kills)
    suffered = 0
    while suffered < kills:
        suffered += interrupted(projects, kills - suffered, chance)
        forked.must("codline", "run")
        assert project.lock == finished.lock
        assert project.must("dvc", "status", "--json").strip() == "{}"
        if suffered < kills:
            start_over(project.root)


def start_over(root: Path) -> None:
    (root / "dvc.lock").unlink()
    for name in ("data", "cycles", "report", ".codline", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(root / name, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_killed_twenty_times_ends_with_the_same_bytes(
    alone: Project, finished: Project, warm: dict[str, str]
) -> None:
    check(alone, finished, 20, warm)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_stops_a_campaign_whatever_stage_runs(alone: Project, finished: Project, warm: dict[str, str]) -> None:
    for stage in ("train@c1", "score@c1"):
        process = alone.start("codline", "run")
        name, _, cycle = stage.partition("@")
        deadline = time.monotonic() + 90
        while not any(f"stages.{name} --cycle {cycle}" in command for command in survivors(alone.root)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert alone.said.rstrip().endswith("stopped; run it again to go on from here")
        assert survivors(alone.root) == []
    alone.having(**warm).must("codline", "run")
    assert alone.lock == finished.lock
