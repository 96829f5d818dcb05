"""The Ray cluster of a stage: one that is running, or one on this machine that the stage starts and that ends with it.

Ray is imported here and in ray_workers.py, inside functions: a stage pays for it only if the engine is ray.
"""

import contextlib
import logging
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from codline.core.errors import CodlineError, InfrastructureError, UserError, causes
from codline.engine.setting import EngineSetting, refuse_missing_ray
from codline.runtime.code_files import CODE, ROOT
from codline.runtime.process_lifetime import is_alive
from codline.runtime.state_directory import state_root

CONNECT_SECONDS = 5  # for an address to answer
REQUEST_SECONDS = 10  # for what listens there to answer as Ray does
TEMPORARY = "codline-ray-"  # with the process id: directory of Ray's sockets, logs and spilled objects
OBJECT_STORE_BYTES = 2**29  # of a cluster that the stage starts: results of chunks on their way
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do by default; it warns otherwise
    "RAY_gcs_server_request_timeout_seconds": str(REQUEST_SECONDS),
    "RAY_gcs_rpc_server_connect_timeout_s": str(CONNECT_SECONDS),
}
RUNNING_CLUSTER = {
    "RAY_AUTH_MODE": "token",  # unless the user has chosen another
    "RAY_NUM_REDIS_GET_RETRIES": str(CONNECT_SECONDS),  # attempts to connect, one a second; 20 by default
}
OWN_CLUSTER = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes this node's address, and so every listener, 127.0.0.1
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",  # Ray's default is 15: workers that lose to any other process
}
# Variables that workers get: they decide bytes, and libraries read them when they are imported.
PASSED = ("NPY_DISABLE_CPU_FEATURES", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def connect_to_cluster(setting: EngineSetting) -> ModuleType:
    """The module `ray`, connected to the cluster of this setting. A stage calls `disconnect` at its end."""
    refuse_missing_ray()
    if setting.address is None:
        variables = ENVIRONMENT | OWN_CLUSTER | {"RAY_AUTH_TOKEN_PATH": str(token_file())}
        os.environ.pop("RAY_AUTH_TOKEN", None)  # which would be used instead of the file
        os.environ.update(variables)
    else:
        refuse_silence(setting.address)
        for name, value in (ENVIRONMENT | RUNNING_CLUSTER).items():
            os.environ.setdefault(name, value)
    import ray
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    if not ray.is_initialized():
        ray._private.worker._worker_logs_enabled = False  # it prints a paragraph for each worker that dies
        AuthenticationTokenLoader.instance().reset_cache()  # a study's worker has had other workspaces
        options = start_options(setting) if setting.address is None else {"address": setting.address}
        try:
            ray.init(
                **options,
                runtime_env=runtime_environment(),
                logging_level=logging.CRITICAL,
                log_to_driver=False,
                namespace="codline",
            )
        except Exception as error:
            raise connection_error(setting, error) from error
        refuse_small_cluster(ray, setting)
    return ray


def disconnect() -> None:
    """Stop the cluster that this process has started, or leave the one that was running."""
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        ray.shutdown()
        shutil.rmtree(temporary_directory(os.getpid()), ignore_errors=True)


def start_options(setting: EngineSetting) -> dict[str, Any]:
    """For a cluster of one node, with room for just these workers."""
    directory = temporary_directory(os.getpid())
    remove_leftovers(directory.parent)
    directory.mkdir(mode=0o700)
    return {
        "address": "local",
        "num_cpus": setting.workers * setting.cpus,
        "num_gpus": None if setting.gpus else 0,  # None: those that the stage sees
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_temp_dir": str(directory / "ray"),  # which Ray makes accessible to all users
    }


def temporary_directory(pid: int) -> Path:
    """Of Ray's sockets, logs and spilled objects. Not in the workspace: a socket's path has at most 107 characters."""
    return Path(tempfile.gettempdir(), f"{TEMPORARY}{os.getuid()}-{pid}")


def remove_leftovers(parent: Path) -> None:
    """Of stages that were killed."""
    for path in parent.glob(f"{TEMPORARY}{os.getuid()}-*"):
        if not is_alive(int(path.name.rpartition("-")[2])):
            shutil.rmtree(path, ignore_errors=True)


def token_file() -> Path:
    """The secret of the workspace's own clusters, readable by this user alone."""
    path = (state_root() / "ray-token").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    return path


def runtime_environment() -> dict[str, Any]:
    """The code of the stage for every node, since code decides bytes, and the variables that do."""
    return {
        "py_modules": [str(ROOT / package) for package in CODE],
        "excludes": ["__pycache__"],
        "env_vars": {name: os.environ[name] for name in PASSED if name in os.environ},
    }


def refuse_silence(address: str) -> None:
    """Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        found = f"--engine ray: {address} does not answer ({error})"
        raise InfrastructureError(f"{found}; expected the address that `ray start --head` has printed") from None


def refuse_small_cluster(ray: ModuleType, setting: EngineSetting) -> None:
    """Ray would wait for ever for workers that no node has room for."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(workers_on(node, setting) for node in nodes)
    if room < setting.workers:
        cpus, gpus = (int(sum(node.get(name, 0) for node in nodes)) for name in ("CPU", "GPU"))
        needs = f"{setting.cpus} CPUs" + (f" and {setting.gpus} GPUs" if setting.gpus else "")
        found = f"the Ray cluster has {cpus} CPUs and {gpus} GPUs on {len(nodes)} nodes, enough for {room} workers"
        raise UserError(f"--engine ray: {found} of {needs}; expected room for {setting.workers}")


def workers_on(node: dict[str, float], setting: EngineSetting) -> int:
    """How many workers a node with these resources has room for, if nothing else runs there."""
    counts = [node.get("CPU", 0) // setting.cpus]
    if setting.gpus:
        counts.append(node.get("GPU", 0) // setting.gpus)
    return int(min(counts))


def connection_error(setting: EngineSetting, error: Exception) -> CodlineError:
    """The sentence for users about what Ray has raised."""
    text = " ".join(str(each) for each in causes(error))
    name = setting.address or "on this machine"
    if versions := re.findall(r"Ray: (\S+)\s+Python: (\S+)", text):
        theirs, ours = (f"Ray {ray} and Python {python}" for ray, python in versions[:2])
        return UserError(f"--engine ray: the cluster {name} has {theirs}, this process {ours}; expected the same")
    if "uthentication" in text or "token" in text.lower():
        return UserError(
            f"--engine ray: the cluster {name} refuses the token; expected its token in RAY_AUTH_TOKEN_PATH "
            "(or RAY_AUTH_MODE=disabled for a cluster without one)"
        )
    if "No node info found" in text:
        return UserError(
            f"--engine ray: this machine is no node of the cluster {name}; "
            f"expected one: ray start --address {name} --num-cpus 0"
        )
    return InfrastructureError(f"--engine ray: no cluster {name}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
