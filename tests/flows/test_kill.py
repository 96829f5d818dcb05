"""Killable: SIGKILL at any instant, run again, and nothing shows."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.flows.project import Project, killed, survivors

LONGEST = 10  # seconds from start to kill


def interrupted(project: Project, kills: int, chance: random.Random) -> int:
    """Start the campaign and kill it, so many times or until it is through; say how often it was killed."""
    for done in range(kills):
        process = project.start("codline", "run")
        deadline = time.monotonic() + chance.uniform(1, LONGEST)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is not None:
            return done
        killed(process)
        patience = time.monotonic() + 5
        while survivors(project.root) and time.monotonic() < patience:
            time.sleep(0.05)
        assert survivors(project.root) == []
    return kills


def check(project: Project, finished: Project, kills: int) -> None:
    chance = random.Random(kills)
    suffered = 0
    while suffered < kills:
        suffered += interrupted(project, kills - suffered, chance)
        project.must("codline", "run")
        assert project.lock == finished.lock
        assert project.must("dvc", "status", "--json").strip() == "{}"
        if suffered < kills:
            start_over(project.root)


def start_over(root: Path) -> None:
    (root / "dvc.lock").unlink()
    for name in ("data", "cycles", "report", ".codline", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(root / name, ignore_errors=True)


def test_a_campaign_killed_twice_ends_with_the_same_bytes(untouched: Project, finished: Project) -> None:
    check(untouched, finished, kills=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_killed_twenty_times_ends_with_the_same_bytes(untouched: Project, finished: Project) -> None:
    check(untouched, finished, kills=20)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["train@c1", "score@c1"])
def test_ctrl_c_stops_a_campaign_whatever_stage_runs(untouched: Project, finished: Project, stage: str) -> None:
    process = untouched.start("codline", "run")
    name, _, cycle = stage.partition("@")
    deadline = time.monotonic() + 90
    while not any(f"stages.{name} --cycle {cycle}" in command for command in survivors(untouched.root)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    said = (untouched.root.parent / "said.txt").read_text()
    assert said.rstrip().endswith("stopped; run it again to go on from here")
    assert survivors(untouched.root) == []
    untouched.must("codline", "run")
    assert untouched.lock == finished.lock
