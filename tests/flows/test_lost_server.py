"""A Prefect server that dies, or refuses, ends a campaign and a study with one sentence; run again, they go on."""

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codline.core.errors import InfrastructureError, UserError
from codline.core.files import read_json
from tests.project import Project, free_port, running_commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STUDY = """
name: small
title: two strategies
base: {train.epochs: 400}
arms:
  random: {score.strategy: {name: random}}
  entropy: {score.strategy: {name: entropy}}
seeds: [0]
"""
SERVER = "import sys, uvicorn; uvicorn.run('prefect.server.api.server:create_app', factory=True, port=int(sys.argv[1]))"
SECONDS = 30  # it takes 3; Prefect's client gives up after minutes


@contextlib.contextmanager
def remote_server(project: Project, home: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that no codline command has started; the project's commands use it."""
    port = str(free_port())
    project.environment |= {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_HOME": str(home)}
    command, quiet = [sys.executable, "-c", SERVER, port], subprocess.DEVNULL
    with subprocess.Popen(command, env=project.environment | settings, stdout=quiet, stderr=quiet) as server:
        try:
            wait_until(lambda: answers(project.environment["PREFECT_API_URL"]), 90)
            yield server
        finally:
            server.kill()


def answers(api: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{api}/health", timeout=5):
        return True
    return False


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def trains(root: Path) -> bool:
    return any("stages train" in command for command in running_commands(root))


def has_started_a_point(root: Path) -> bool:
    return any((root / ".codline/studies/small").glob("*-s0/.codline/seconds/prepare.json"))


def test_lost_server_ends_run_and_study_with_one_sentence_and_run_again_side_by_side_both_complete(
    untouched: Project, finished: Project, tmp_path: Path
) -> None:
    (untouched.root / "studies/small.yaml").write_text(STUDY)
    study, run = ("codline", "study", "small", "--jobs", "1"), ("codline", "run")
    first = untouched.with_environment()
    with remote_server(first, tmp_path / "home") as server, ThreadPoolExecutor() as threads:
        running = [threads.submit(first.run, *study)]
        wait_until(lambda: has_started_a_point(first.root), 120)
        running.append(threads.submit(first.run, *run))
        wait_until(lambda: trains(first.root), 60)
        server.kill()
        killed = time.monotonic()
        for future in running:
            done, sentence = future.result(), f"{first.environment['PREFECT_API_URL']} stopped answering; run it again"
            assert done.returncode == InfrastructureError.exit_code, done.stderr
            said = done.stderr.replace("Killed\n", "")  # by the shell in which DVC had started the stage
            assert said == f"codline: the Prefect server at {sentence} to go on from here\n"
        assert time.monotonic() - killed < SECONDS
        wait_until(lambda: running_commands(first.root) == [], SECONDS)

    with ThreadPoolExecutor() as threads:
        for future in [threads.submit(untouched.must, *command) for command in (study, run)]:
            future.result()
    assert untouched.lock == finished.lock
    results = read_json(untouched.root / ".codline/studies/small/results.json")
    assert {(point["arm"], len(point["curve"])) for point in results["points"]} == {("random", 2), ("entropy", 2)}


def test_server_that_refuses_the_client_is_one_sentence(untouched: Project, tmp_path: Path) -> None:
    with remote_server(untouched, tmp_path / "home", PREFECT_SERVER_API_AUTH_STRING="name:secret"):
        done = untouched.run("codline", "run")
    assert done.returncode == UserError.exit_code
    api = untouched.environment["PREFECT_API_URL"]
    assert done.stderr == f"codline: the Prefect server at {api} refuses this PREFECT_API_AUTH_STRING\n"
