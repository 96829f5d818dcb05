"""Deployments: run by name, wrong parameters refused before anything runs, cancelled without a trace."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from codline.core import params
from codline.runtime.campaign_identity import CampaignIdentity
from tests.project import Project, running_commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@contextlib.contextmanager
def serving(project: Project) -> Iterator[subprocess.Popen[str]]:
    process = project.start("codline", "serve")
    deadline = time.monotonic() + 120
    try:
        while "campaign/local and cycle/local are served" not in project.output:
            assert time.monotonic() < deadline, "the flows are not served"
            assert process.poll() is None, project.output
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def served(untouched: Project) -> Iterator[Project]:
    with serving(untouched):
        yield untouched


@pytest.fixture
def served_alone(alone: Project) -> Iterator[Project]:
    with serving(alone):
        yield alone


def post(project: Project, path: str, body: dict[str, Any]) -> Any:
    secret = project.environment["PREFECT_API_AUTH_STRING"]
    request = urllib.request.Request(
        f"{project.environment['PREFECT_API_URL']}/{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Basic {b64encode(secret.encode()).decode()}"},
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def run_state(project: Project, run: str) -> dict[str, Any]:
    found: dict[str, Any] = post(project, "flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})[0]["state"]
    return found


def start_run(project: Project, *words: str) -> str:
    said = project.must("prefect", "deployment", "run", *words)
    found = re.search(r"UUID: (\S+)", said)
    assert found, said
    return found[1]


def wait_for_train(project: Project, run: str) -> None:
    deadline = time.monotonic() + 120
    while not any("stages train" in command for command in running_commands(project.root)):
        assert time.monotonic() < deadline, run_state(project, run)
        time.sleep(0.05)


def test_deployment_that_is_cancelled_and_run_again_ends_with_the_same_bytes(
    served_alone: Project, finished: Project
) -> None:
    run = start_run(served_alone, "campaign/local")
    wait_for_train(served_alone, run)
    deadline = time.monotonic() + 120
    served_alone.must("prefect", "flow-run", "cancel", run)
    while run_state(served_alone, run)["type"] != "CANCELLED" or any(
        "-m stages " in command for command in running_commands(served_alone.root)
    ):
        assert time.monotonic() < deadline, (run_state(served_alone, run), running_commands(served_alone.root))
        time.sleep(0.2)

    again = served_alone.run("prefect", "deployment", "run", "campaign/local", "--watch")
    assert again.returncode == 0, again.stdout
    assert served_alone.lock == finished.lock

    keys = {
        artifact["key"]: artifact["type"]
        for artifact in post(served_alone, "artifacts/filter", {"sort": "CREATED_DESC"})
    }
    campaign = CampaignIdentity(params.read_yaml(served_alone.root / "params.yaml")).slug
    assert campaign.startswith("digits-cod-seed-0-")
    assert keys[f"{campaign}-learning-curve"] == "table"
    assert keys[f"{campaign}-query-c1"] == "image"


def test_serve_that_is_interrupted_terminated_or_killed_ends_its_run_and_the_next_one_starts(
    alone: Project, finished: Project
) -> None:
    endless = ("campaign/local", "-p", 'overrides={"train.epochs": 100000}')
    for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with serving(alone) as process:
            run = start_run(alone, *endless)
            wait_for_train(alone, run)
            if end == signal.SIGINT:  # as a terminal does, to the whole process group
                waiting = start_run(alone, *endless)
                assert run_state(alone, waiting)["type"] == "SCHEDULED"  # one run at a time
                alone.must("prefect", "flow-run", "cancel", waiting)
                os.killpg(process.pid, end)
            else:
                os.kill(process.pid, end)
            assert process.wait(20) == {signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGKILL: -9}[end]
        deadline = time.monotonic() + 20
        while commands := running_commands(alone.root):
            assert time.monotonic() < deadline, commands
            time.sleep(0.1)
        if end != signal.SIGKILL:
            assert run_state(alone, run)["type"] == "CRASHED"

    with serving(alone):
        assert run_state(alone, run)["type"] == "CRASHED"
        alone.must("prefect", "deployment", "run", "campaign/local", "--watch", "-p", 'overrides={"train.epochs": 2}')
    assert alone.lock == finished.lock


PUBLISH = """
import time
from prefect import flow
from codline.runtime.state_directory import write_note
from flows.tasks import published_progress

@flow
def example():
    with published_progress("train@c9"):
        time.sleep(2)

write_note("progress", "train@c9", {"unit": "epochs", "done": 1, "total": 2})
example()
"""


def test_task_publishes_the_progress_of_its_stage(project: Project) -> None:
    project.must("python", "-c", PUBLISH)
    key = CampaignIdentity(params.read_yaml(project.root / "params.yaml")).slug + "-train-c9"
    (artifact,) = post(project, "artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
    assert (artifact["type"], artifact["data"]) == ("progress", 100.0)
    assert artifact["description"] == "digits · cod · seed 0: train@c9, 2 epochs"


NAMED_BY_ITS_ARGUMENTS = """
import flows.campaign
from flows.cycle import cycle

cycle("c1")

def stop():
    raise SystemExit(9)

flows.campaign.prepare = stop
flows.campaign.campaign(strategy="entropy", seed=3)
"""


def test_flow_runs_are_named_for_their_campaign_and_cycle(project: Project) -> None:
    assert project.run("python", "-c", NAMED_BY_ITS_ARGUMENTS).returncode == 9
    names = {run["name"] for run in post(project, "flow_runs/filter", {"sort": "START_TIME_DESC"})}
    assert names >= {"digits · cod · seed 0 · c1", "digits · entropy · seed 3"}


def test_deployment_refuses_wrong_parameters_before_anything_runs(served: Project) -> None:
    before = (served.root / "params.yaml").read_bytes()
    done = served.run("prefect", "deployment", "run", "campaign/local", "--watch", "-p", "strategy=entropyy")
    assert done.returncode == 1
    run = re.search(r"UUID: (\S+)", done.stdout)
    assert run
    assert "unknown strategy 'entropyy'; did you mean entropy?" in run_state(served, run[1])["message"]
    assert (served.root / "params.yaml").read_bytes() == before
    assert not (served.root / "data/pool.parquet").exists()
    done = served.run("prefect", "deployment", "run", "campaign/local", "--watch", "-p", "preset=digitz")
    run = re.search(r"UUID: (\S+)", done.stdout)
    assert run
    assert "unknown preset 'digitz'; did you mean digits or digits-full?" in run_state(served, run[1])["message"]
    assert (served.root / "params.yaml").read_bytes() == before
    late = served.run("prefect", "deployment", "run", "cycle/local", "--watch", "-p", "cycle=c2")
    assert late.returncode == 1
