"""Passes on Ray: on a cluster that a stage starts, and on one of two nodes. Each runs once: starting takes seconds."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from codline.core.errors import InfrastructureError
from codline.engine.ordered_results import ITEMS_PER_WORKER
from codline.engine.ray_cluster import connect_to_cluster, workers_on
from codline.engine.setting import EngineSetting
from tests.engine.namespaces import ADDRESSES, Namespace, processes_of, two_namespaces
from tests.engine.test_local_workers import wait_until
from tests.project import BIN, make_once
from tests.workspace import REPOSITORY, Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CLUSTER = f"{ADDRESSES[0]}:6379"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # as the kernel writes 127.0.0.1, in IPv4 and IPv6
TOKEN = "0123456789abcdef" * 4
FULL_DISK = {"RAY_local_fs_capacity_threshold": "0.0001"}  # the share in use from which on Ray takes a disk for full
CONNECT = "from codline.engine import ray_cluster, setting; ray_cluster.connect_to_cluster(setting.engine_setting())"


def environment(folder: Path, **changes: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CODLINE_"))}
    return ours | {"PYTHONPATH": str(REPOSITORY), "HOME": str(folder)} | changes


def run(namespace: Namespace, folder: Path, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a namespace and in a directory."""
    command, settings = namespace.command(sys.executable, *words), environment(folder, **changes)
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=500)


def read_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns and what its process has written to record.json, for all test workers."""

    def write(folder: Path) -> None:
        folder.mkdir()
        more = make(folder)
        record = json.loads((folder / "record.json").read_text())
        (folder / "record.json").write_text(json.dumps(record | more))

    record: dict[str, Any] = json.loads((make_once(factory, name, write) / "record.json").read_text())
    return record


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of ray_own_cluster.py."""

    def make(folder: Path) -> dict[str, Any]:
        with two_namespaces() as (namespace, _):
            done = run(namespace, folder, "-m", "tests.engine.ray_own_cluster", str(folder), **FULL_DISK)
            left = processes_of(namespace.holder.pid)
        assert done.returncode == 0, done.stderr
        more = {"printed": done.stdout + done.stderr, "home": [path.name for path in folder.glob(".ray")]}
        return more | {"folder": str(folder), "processes left": left}

    return read_once(tmp_path_factory, "ray-own-cluster", make)


def start_node(namespace: Namespace, folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start a Ray node with one CPU, which ends with its namespace."""
    options = ("--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block")
    command = namespace.command(str(BIN / "ray"), "start", *words, *options)
    settings = environment(folder, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(folder / "token"))
    with (folder / "nodes.txt").open("a") as output:
        return subprocess.Popen(command, cwd=folder, env=settings, stdout=output, stderr=output)


def refusal(namespace: Namespace, folder: Path, **changes: str) -> str:
    """What a process is told that connects to the cluster with these variables."""
    return run(namespace, folder, "-c", CONNECT, CODLINE_ENGINE=f"ray@{CLUSTER}", **changes).stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def two_nodes(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of ray_two_nodes.py, and what processes without the cluster's token are told."""

    def make(folder: Path) -> dict[str, Any]:
        token, wrong = folder / "token", folder / "wrong"
        token.write_text(TOKEN)
        wrong.write_text(TOKEN[::-1])
        workspace = Workspace(campaign).copy_to(folder / "campaign")
        workspace.change(**{"score.batch_size": 32})
        with (
            TemporaryDirectory(prefix="codline-test-") as files,
            ExitStack() as nodes,
            two_namespaces() as (first, second),
        ):
            head = ("--head", f"--node-ip-address={ADDRESSES[0]}", "--include-dashboard=false", f"--temp-dir={files}")
            nodes.enter_context(start_node(first, folder, *head))
            wait_until(lambda: "Ray runtime started" in (folder / "nodes.txt").read_text())
            other = (f"--address={CLUSTER}", f"--node-ip-address={ADDRESSES[1]}")
            nodes.enter_context(start_node(second, folder, *other))
            words = ("-m", "tests.engine.ray_two_nodes", str(folder), CLUSTER, str(second.holder.pid))
            done = run(first, workspace.root, *words, RAY_AUTH_TOKEN_PATH=str(token))
            assert done.returncode == 0, done.stderr
            refusals = {
                "wrong token": refusal(first, folder, RAY_AUTH_TOKEN_PATH=str(wrong)),
                "no token": refusal(first, folder),
            }
        return refusals | {"printed": done.stdout + done.stderr}

    return read_once(tmp_path_factory, "ray-two-nodes", make)


def test_results_come_in_the_order_of_the_items(own_cluster: dict[str, Any]) -> None:
    assert own_cluster["squares"] == [[item * item for item in range(20)]] * 2


def test_items_are_computed_in_the_directory_of_the_stage_after_the_setup(own_cluster: dict[str, Any]) -> None:
    assert {tuple(place[1:]) for place in own_cluster["places"]} == {(own_cluster["folder"], "set up")}


def test_items_are_taken_only_as_far_ahead_as_two_per_worker(own_cluster: dict[str, Any]) -> None:
    ahead = [taken - consumed for consumed, taken in enumerate(own_cluster["taken"], 1)]
    assert max(ahead) <= ITEMS_PER_WORKER * 2


def test_item_that_kills_three_workers_ends_the_pass_with_exit_code_7(own_cluster: dict[str, Any]) -> None:
    assert own_cluster["deaths"].startswith("7: a Ray worker of the pass died 3 times on the same images; run it again")


def test_full_disk_of_a_node_ends_the_pass_with_exit_code_5(own_cluster: dict[str, Any]) -> None:
    found = "the disk of a node of the Ray cluster on this machine is full"
    assert own_cluster["full disk"] == f"5: {found}; free some space and run it again"


def test_worker_without_a_package_is_named(own_cluster: dict[str, Any]) -> None:
    expected = f"2: the worker on {platform.node()} has no Python package 'only_here'; expected it on every machine"
    assert own_cluster["package"].startswith(expected)


def test_cluster_of_a_stage_listens_on_loopback_alone(own_cluster: dict[str, Any]) -> None:
    """In a namespace with another address and a default route, which Ray would choose."""
    assert set(own_cluster["listeners"]) <= LOOPBACK
    assert own_cluster["listeners"]


def test_token_and_files_of_the_cluster_are_accessible_to_this_user_alone(own_cluster: dict[str, Any]) -> None:
    assert own_cluster["modes"] == {"token": "0o600", "directory": "0o700"}
    assert not own_cluster["home"], "Ray would write a token that every user can read"


def test_workers_have_the_priority_of_the_stage(own_cluster: dict[str, Any]) -> None:
    assert own_cluster["niceness"] == [0]


def test_cluster_ends_with_the_stage(own_cluster: dict[str, Any]) -> None:
    assert not own_cluster["directory is left"]
    assert own_cluster["processes left"] == []


def test_score_writes_the_same_bytes_on_two_nodes_of_which_one_is_killed(two_nodes: dict[str, Any]) -> None:
    assert two_nodes["killed node"] == two_nodes["one process"]
    assert not two_nodes["passes are left"]


def test_more_workers_than_the_cluster_has_room_for_are_refused(two_nodes: dict[str, Any]) -> None:
    found = "the Ray cluster has 2 CPUs and 0 GPUs on 2 nodes, enough for 2 workers of 1 CPUs"
    assert two_nodes["too many"] == f"2: --engine ray: {found}; expected room for 3"


def test_pass_without_a_worker_ends_with_exit_code_7(two_nodes: dict[str, Any]) -> None:
    found = f"no worker of the pass runs: the Ray cluster {CLUSTER} is busy; 0 CPUs and 0 GPUs are free"
    assert two_nodes["busy"] == f"7: {found}"


def test_cluster_with_another_version_of_ray_is_refused(two_nodes: dict[str, Any]) -> None:
    python = f"Python {platform.python_version()}"
    found = f"the cluster {CLUSTER} has Ray {version('ray')} and {python}, this process Ray 2.0.0 and {python}"
    assert two_nodes["version"] == f"2: --engine ray: {found}; expected the same"


def test_worker_with_another_version_of_a_package_is_refused(two_nodes: dict[str, Any]) -> None:
    found = f"the worker on {platform.node()} has the package torch {version('torch')}"
    assert two_nodes["package"] == f"2: --engine ray: {found}; expected 1.0, which this process has"


@pytest.mark.parametrize("token", ["wrong token", "no token"])
def test_process_without_the_token_of_the_cluster_is_refused(two_nodes: dict[str, Any], token: str) -> None:
    expected = (
        f"UserError: --engine ray: the cluster {CLUSTER} refuses the token; expected its token in RAY_AUTH_TOKEN_PATH"
    )
    assert expected in two_nodes[token]


def test_stage_imports_ray_only_if_it_is_the_engine(two_nodes: dict[str, Any]) -> None:
    assert two_nodes["one process imports Ray"] is False


def test_ray_prints_nothing(own_cluster: dict[str, Any], two_nodes: dict[str, Any]) -> None:
    assert own_cluster["printed"] == two_nodes["printed"] == ""


def test_address_that_does_not_answer_is_refused_at_once() -> None:
    with pytest.raises(
        InfrastructureError, match=r"^--engine ray: 127\.0\.0\.1:1 does not answer \(.*Connection refused"
    ):
        connect_to_cluster(EngineSetting(is_ray=True, address="127.0.0.1:1"))


def test_workers_fit_on_nodes_that_have_all_that_they_need() -> None:
    node = {"CPU": 16.0, "GPU": 3.0}
    assert workers_on(node, EngineSetting(is_ray=True, cpus=4)) == 4
    assert workers_on(node, EngineSetting(is_ray=True, cpus=4, gpus=1)) == 3
    assert workers_on({"CPU": 3.0}, EngineSetting(is_ray=True, cpus=4)) == 0
    assert workers_on({"CPU": 8.0}, EngineSetting(is_ray=True, gpus=1)) == 0
