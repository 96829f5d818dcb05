"""Campaigns, served campaigns and studies that are killed at random instants end with the same bytes."""

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from codline.core.files import read_json
from tests.faults.conftest import Tally, long_only
from tests.project import Project, clone_with_small_campaign, kill, running_commands, running_processes
from tests.tiny_study import TINY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
LONGEST_WAIT = 3.0  # seconds before a kill, from the start of the command or of its first stage
STAGE = "-m stages"  # of a campaign `-m stages NAME`, of a study `-m stages.study_worker`


def run_and_kill(project: Project, words: list[str], rng: random.Random) -> str | None:
    """Start a command and kill it; returns what is wrong then, or None if it ended before.

    One kill in four may hit the start-up, the others hit stages and what lies between them.
    """
    process = project.start(*words)
    has_ended = partial(has_process_ended, process)
    if rng.random() > 0.25:
        wait_until(lambda: has_ended() or is_running(project.root, STAGE), 60)
    wait_until(has_ended, rng.uniform(0, LONGEST_WAIT))
    if process.poll() is not None:
        assert process.returncode == 0, project.output
        return None
    kill(process)
    return orphans(project)


def orphans(project: Project) -> str:
    """A process that is killed while it waits for the disk ends once the disk has answered."""
    wait_until(lambda: not running_commands(project.root), 60)
    left = [describe_process(pid, command) for pid, command in running_processes(project.root).items()]
    return f"these processes outlive it: {left}" if left else ""


def describe_process(pid: int, command: str) -> str:
    """With what each of its threads waits for, which tells why it has not ended."""
    threads = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # it has ended meanwhile
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            threads.append(f"{state} {(task / 'wchan').read_text()}")
    return f"{command} ({', '.join(threads)})"


def has_process_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def is_running(root: Path, words: str) -> bool:
    """In this directory or, for a study, below it."""
    return any(words in command for command in running_commands(root)) or any(
        words in command for point in (root / ".codline/studies").glob("*/*/") for command in running_commands(point)
    )


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def remove_results(root: Path) -> None:
    (root / "dvc.lock").unlink(missing_ok=True)
    for name in ("data/inputs", "cycles", "report", "models", ".codline", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(root / name, ignore_errors=True)
    for path in (root / "data").glob("*.*"):
        path.unlink()


def test_campaign_killed_at_random_instants_ends_with_the_same_bytes(
    alone: Project, finished: Project, fork_server_environment: dict[str, str], tally: Tally
) -> None:
    """One run in four starts a fork server of its own, often killed while it imports; the others use the tests' one."""
    forked = alone.with_environment(**fork_server_environment)
    projects, rng = [alone, forked, forked, forked], random.Random(0)
    kills = 100 if tally.is_long else 5
    while (done := tally.tried.total()) < kills:
        problem = run_and_kill(projects[done % 4], ["codline", "run"], rng)
        is_last = done == kills - 1
        if problem is None or is_last:
            forked.must("codline", "run")
            same = alone.lock == finished.lock and alone.must("dvc", "status", "--json").strip() == "{}"
            problem = "" if same else "other bytes when it was run again"
            remove_results(alone.root)
        tally.count("random kills of codline run", f"kill {done + 1}", problem)


def test_served_campaign_killed_at_random_instants_is_resumed_by_codline_run(
    untouched: Project, finished: Project, tally: Tally
) -> None:
    rng = random.Random(1)
    for number in range(10 if tally.is_long else 1):
        process = untouched.start("codline", "serve")
        wait_until(lambda: "are served" in untouched.output, 120)
        untouched.must("prefect", "deployment", "run", "campaign/local")
        wait_until(lambda: is_running(untouched.root, STAGE), 120)
        time.sleep(rng.uniform(0, LONGEST_WAIT))
        kill(process)
        problem = orphans(untouched)
        if not problem:
            untouched.must("codline", "run")
            problem = "" if untouched.lock == finished.lock else "other bytes when it was run again"
        tally.count("random kills of codline serve", f"kill {number + 1}", problem)
        remove_results(untouched.root)


@long_only
def test_study_killed_at_random_instants_ends_with_the_same_results(
    api: dict[str, str], fork_server_environment: dict[str, str], tmp_path: Path, tally: Tally
) -> None:
    rng, words = random.Random(2), ["codline", "study", "tiny", "--jobs", "2"]
    project = clone_with_small_campaign(tmp_path / "codline", **api, **fork_server_environment, CODLINE_TRACKING="off")
    (project.root / "studies/tiny.yaml").write_text(TINY)
    folder = project.root / ".codline/studies/tiny"
    project.must(*words, timeout=580)
    expected = study_results(folder)
    for study in range(4):
        shutil.rmtree(project.root / ".codline/studies")
        shutil.rmtree(project.root / ".dvc/cache")
        project.must("git", "worktree", "prune")
        problems = []
        for _ in range(8):
            if (problem := run_and_kill(project, words, rng)) is None:
                break
            problems.append(problem)
        project.must(*words, timeout=580)
        if study_results(folder) != expected:
            problems[-1] = problems[-1] or "other results when it was run again"
        for problem in problems:
            tally.count("random kills of codline study", f"study {study + 1}", problem)


def study_results(folder: Path) -> tuple[list[object], dict[str, bytes]]:
    """Curves and dvc.lock of each point; how long points took is left out."""
    points = [(point["arm"], point["seed"], point["curve"]) for point in read_json(folder / "results.json")["points"]]
    return points, {path.parent.name: path.read_bytes() for path in sorted(folder.glob("*/dvc.lock"))}
