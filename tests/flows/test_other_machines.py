"""Two machines on one: a laptop submits, workers run, and nothing is common to them but git, S3, Prefect and MLflow."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codline.core.errors import InfrastructureError, UserError
from tests.faults import LONG
from tests.flows.test_deployments import post, run_state
from tests.project import BIN, Project, clone_with_small_campaign
from tests.servers import has_postgres, running_mlflow, running_postgres, running_prefect, running_s3

STUDY = """
name: pool
title: Two trainings
base: {train.objectives: []}
cycles: 1
arms: {short: {train.epochs: 1}, long: {train.epochs: 2}}
seeds: [0]
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class WorkerMachine:
    """A directory with its own home and temporary files, in which a worker polls the pool."""

    def __init__(self, root: Path, settings: dict[str, str]) -> None:
        self.root, self.computed = root, set[str]()
        for name in ("home", "tmp"):
            (root / name).mkdir(parents=True)
        ours = {
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        self.log = root / "worker.log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [BIN / "prefect", "worker", "start", "--pool", "gpu", "--name", root.name],
                cwd=root,
                env=ours | settings | {"PREFECT_WORKER_QUERY_SECONDS": "2"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def observe(self) -> set[str]:
        """The stages that were computed here since the start: they leave a note of their time in the clone."""
        self.computed |= {note.stem for note in self.root.glob("tmp/*/*/.codline/seconds/*.json")}
        return self.computed

    def flow_processes(self) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_flow = b"prefect.engine" in (process / "cmdline").read_bytes()
                if is_flow and (process / "cwd").readlink().is_relative_to(self.root):
                    found.append(int(process.name))
        return found

    def kill(self) -> None:
        for pid in [self.process.pid, *self.flow_processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Team:
    def __init__(self, root: Path, laptop: Project, settings: dict[str, str]) -> None:
        self.root, self.laptop, self.settings = root, laptop, settings
        self.machines = list[WorkerMachine]()

    def start_worker(self, name: str) -> WorkerMachine:
        """Returns once it polls the pool."""
        machine = WorkerMachine(self.root / name, self.settings)
        self.machines.append(machine)
        wait_for(lambda: name in self.polling_workers(), machine)
        return machine

    def polling_workers(self) -> set[str]:
        workers = post(self.laptop, "work_pools/gpu/workers/filter", {})
        return {worker["name"] for worker in workers if worker["status"] == "ONLINE"}

    def deploy(self) -> str:
        found = re.search(r"prefect deployment run (\S+)", self.laptop.run("codline", "deploy", "--pool", "gpu").stdout)
        assert found
        return found[1]


@pytest.fixture(scope="module")
def team(api: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Prefect and MLflow store in Postgres where it is installed; else Prefect's server is that of the other tests."""
    root = tmp_path_factory.mktemp("team")
    repository = f"file://{root}/codline.git"
    subprocess.run(["git", "init", "-q", "--bare", str(root / "codline.git")], check=True)
    with contextlib.ExitStack() as stack:
        storage = stack.enter_context(running_s3(root))
        prefect, mlflow = {key: value for key, value in api.items() if key.startswith("PREFECT_API_")}, {}
        if has_postgres():
            postgres = stack.enter_context(running_postgres())
            prefect = stack.enter_context(running_prefect(root, postgres))
            mlflow = {"MLFLOW_TRACKING_URI": stack.enter_context(running_mlflow(root, postgres))}
        settings = storage | prefect | mlflow
        laptop = clone_with_small_campaign(root / "laptop/codline", **storage, **prefect, CODLINE_TRACKING="off")
        (laptop.root / "studies/pool.yaml").write_text(STUDY)
        laptop.must("dvc", "remote", "add", "--default", "storage", "s3://results/codline")
        laptop.must("git", "add", "-A")
        laptop.must("git", "commit", "-qm", "storage")
        laptop.must("git", "remote", "add", "origin", repository)
        laptop.must("git", "push", "-q", "origin", "HEAD:main")
        laptop.must("prefect", "work-pool", "create", "--type", "process", "gpu")
        team = Team(root, laptop, settings)
        yield team
        for machine in team.machines:
            machine.kill()


def wait_for(condition: Callable[[], bool], machine: WorkerMachine) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        machine.observe()
        assert time.monotonic() < deadline, machine.log.read_text()
        time.sleep(0.1)


@pytest.mark.skipif(os.environ.get(LONG) != "all", reason="takes minutes, so only `make faults` runs it")
def test_campaign_whose_machine_dies_goes_on_at_another_one_and_comes_back(team: Team, finished: Project) -> None:
    laptop = team.laptop
    refused = laptop.run("codline", "deploy", "--pool", "gpu")
    assert refused.returncode == InfrastructureError.exit_code
    assert refused.stderr.startswith("codline: no worker polls the work pool gpu; prefect worker start --pool gpu")
    one = team.start_worker("one")
    said = laptop.must("prefect", "deployment", "run", team.deploy())
    run = re.findall(r"UUID: (\S+)", said)[0]
    wait_for(lambda: "select@c1" in one.observe(), one)
    (flow,) = one.flow_processes()
    os.kill(flow, signal.SIGKILL)
    wait_for(lambda: run_state(laptop, run)["type"] != "RUNNING", one)
    one.kill()
    two = team.start_worker("two")
    wait_for(lambda: run_state(laptop, run)["type"] in ("COMPLETED", "FAILED"), two)
    assert run_state(laptop, run)["type"] == "COMPLETED", run_state(laptop, run)
    assert two.computed >= {"train@c2", "evaluate@c2"}
    assert not two.computed & {"prepare", "train@c1", "score@c1"}  # which were done and sent

    laptop.must("codline", "run", "--share")
    assert not list(laptop.root.glob(".codline/seconds/*"))  # nothing was computed here
    assert laptop.lock == finished.lock
    assert json.loads(laptop.must("dvc", "status", "--json")) == {}
    cycles = post(laptop, "flow_runs/filter", {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}})
    assert {cycle["state"]["type"] for cycle in cycles} == {"COMPLETED", "CRASHED"}  # what the first machine was at
    if "MLFLOW_TRACKING_URI" in team.settings:
        check_mlflow(team)
    check_secrets(team, run)


def check_mlflow(team: Team) -> None:
    """The second machine has logged the campaign and both cycles."""
    body = json.dumps({"experiment_ids": ["1"], "max_results": 10}).encode()
    address = f"{team.settings['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/search"
    request = urllib.request.Request(address, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        assert [run["info"]["status"] for run in json.load(reply)["runs"]] == ["FINISHED"] * 3


def check_secrets(team: Team, run: str) -> None:
    """Prefect has none in deployments, flow runs or logs, nor has the repository."""
    bodies = {"deployments": {}, "flow_runs": {}, "logs": {"logs": {"flow_run_id": {"any_": [run]}}}}
    shown = [post(team.laptop, f"{kind}/filter", body) for kind, body in bodies.items()]
    texts = [json.dumps(shown), *(machine.log.read_text() for machine in team.machines)]
    texts += [(team.laptop.root / name).read_text() for name in ("params.yaml", "dvc.lock", ".dvc/config")]
    assert not [text for text in texts if "s3cret" in text]


def test_study_on_a_pool_has_the_table_and_the_figure_of_one_that_runs_here(team: Team) -> None:
    laptop, results = team.laptop, team.laptop.root / ".codline/studies/pool"
    worker = team.machines[-1] if team.machines else team.start_worker("three")
    done = laptop.run("codline", "study", "pool", "--pool", "gpu", timeout=800)
    assert done.returncode == 0, done.stderr + worker.log.read_text()
    assert {f"  {arm}, seed 0: running at gpu" for arm in ("short", "long")} <= {*done.stdout.splitlines()}
    assert not list(results.glob("*/.codline/seconds/*"))  # nothing was computed here
    names = ("results.csv", "figure.svg", "figure.png", "short-s0/dvc.lock", "long-s0/dvc.lock")
    there = {name: (results / name).read_bytes() for name in names}
    for path in (results, laptop.root / ".dvc/cache"):
        shutil.rmtree(path)
    laptop.must("codline", "study", "pool", "--jobs", "1")
    assert len(list(results.glob("*/.codline/seconds/train@c1.json"))) == 2
    assert {name: (results / name).read_bytes() for name in names} == there


def test_commit_that_was_not_pushed_is_refused(team: Team) -> None:
    laptop = team.laptop
    laptop.must("git", "commit", "-qm", "another", "--allow-empty")
    try:
        for command in (("deploy",), ("study", "pool", "-S", "evaluate.calibration_bins=5")):
            done = laptop.run("codline", *command, "--pool", "gpu")
            assert done.returncode == UserError.exit_code
            assert re.search(
                r"codline: commit \w{10} is on no branch of origin, so no worker can clone it", done.stderr
            )
    finally:
        laptop.must("git", "reset", "-q", "HEAD^")


def test_bucket_that_is_missing_is_one_sentence(team: Team) -> None:
    laptop = team.laptop
    laptop.must("dvc", "remote", "modify", "--local", "storage", "url", "s3://nowhere/codline")
    try:
        done = laptop.run("codline", "run", "--share")
        assert done.returncode == UserError.exit_code
        expected = "the DVC remote s3://nowhere/codline: not found (Not Found); create it, or correct its address"
        assert done.stderr == f"codline: {expected}\n"
    finally:
        laptop.must("dvc", "remote", "modify", "--local", "--unset", "storage", "url")
