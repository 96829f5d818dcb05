"""Passes of the score stage on a Ray cluster of two nodes, written to FOLDER/record.json; for test_ray_workers.py.

Runs on the first node, in the directory of a campaign whose first model is trained:

    python -m tests.engine.ray_two_nodes FOLDER ADDRESS HOLDER_OF_THE_SECOND_NODE
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import hashlib
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from codline.core.errors import CodlineError
from codline.engine import ray_actor, ray_workers
from codline.engine.ray_actor import PassActor
from codline.engine.ray_cluster import connect_to_cluster
from codline.engine.setting import ENGINE, EngineSetting, engine_setting
from codline.learning.inference import BatchOutputs
from codline.learning.pass_files import PassFile
from codline.runtime import state_directory
from tests.engine import jobs
from tests.engine.namespaces import kill_processes
from tests.engine.test_local_workers import wait_until
from tests.workspace import Workspace

KILLED_AFTER = 8  # batches


def hashes(workspace: Workspace, engine: str) -> list[str]:
    """Of what score writes."""
    os.environ[ENGINE] = engine
    workspace.execute("score", "c1")
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in workspace.outputs("score", "c1")]


def hashes_after_a_kill(workspace: Workspace, engine: str, node: int) -> list[str]:
    """The same if all of the second node is killed in the middle of the pass."""
    append, batches = PassFile.append, count(1)

    def disturbed_append(file: PassFile, batch: BatchOutputs) -> BatchOutputs:
        if next(batches) == KILLED_AFTER:
            kill_processes(node)
        return append(file, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassFile, "append", disturbed_append)
        return hashes(workspace, engine)


def sentence(workspace: Workspace, engine: str) -> str:
    try:
        return f"no error: {hashes(workspace, engine)}"
    except CodlineError as error:
        return f"{error.exit_code}: {error}"


def wait_for_nodes(address: str, number: int) -> None:
    connected = connect_to_cluster(EngineSetting(is_ray=True, address=address))
    wait_until(lambda: sum(node["Alive"] for node in connected.nodes()) == number)
    ray_workers.leave_cluster()


def sentence_of_busy_cluster(address: str) -> str:
    """What a pass is told while another has both CPUs."""
    os.environ[ENGINE] = f"ray:1@{address}"
    connected = connect_to_cluster(engine_setting())
    others = [connected.remote(num_cpus=1)(PassActor).remote("nowhere") for _ in range(2)]
    connected.get([other.environment.remote() for other in others])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_workers, "START_SECONDS", 1.0)
        try:
            return f"no error: {list(ray_workers.compute_in_order(1, os.getpid, jobs.squares, [1]))}"
        except CodlineError as error:
            return f"{error.exit_code}: {error}"
        finally:
            ray_workers.leave_cluster()


def main(folder: Path, address: str, node: int) -> None:
    workspace, record = Workspace(Path.cwd()), dict[str, Any]()
    record["one process"] = hashes(workspace, "local")
    record["one process imports Ray"] = "ray" in sys.modules
    wait_for_nodes(address, 2)
    record["too many"] = sentence(workspace, f"ray:3@{address}")
    record["busy"] = sentence_of_busy_cluster(address)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray.__version__", "2.0.0")
        record["version"] = sentence(workspace, f"ray:2@{address}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_workers, "package_versions", lambda: ray_actor.package_versions() | {"torch": "1.0"})
        record["package"] = sentence(workspace, f"ray:1@{address}")
    record["killed node"] = hashes_after_a_kill(workspace, f"ray:2@{address}", node)
    record["passes are left"] = (state_directory.state_root() / "passes/score@c1").exists()
    (folder / "record.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
