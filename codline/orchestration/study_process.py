"""The process of a study's point: `codline run` in the point's worktree."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from codline.core.errors import BY_EXIT_CODE, CodlineError, InfrastructureError
from codline.core.files import read_json, write_json
from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_plan import StudyPlan, reported_error
from codline.runtime import fork_server, state_directory
from codline.runtime.background import is_tracking
from codline.runtime.campaign_identity import TITLE
from codline.runtime.pipeline import Pipeline
from codline.runtime.process_lifetime import OWNER

CURVE_KEYS = ("labels", "accuracy", "loss", "mean_iou")  # mean_iou: only segmentation has it
_processes: set[subprocess.Popen[bytes]] = set()


def run_point_campaign(plan: StudyPlan, point: StudyPoint) -> None:
    """Run the campaign of a point and write its record. The output of the process goes to <point>.log."""
    started = time.monotonic()
    run_worker(point, plan.worktree(point), plan.folder / f"{point.name}.log", point_environment(plan, point))
    record = {
        "digest": plan.digest(point),
        "arm": point.arm,
        "seed": point.seed,
        "curve": read_curve(plan.worktree(point)),
        "seconds": time.monotonic() - started,
    }
    write_json(plan.record_file(point), record)


def run_worker(point: StudyPoint, worktree: Path, log: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "codline.cli.study_worker"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=worktree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        _processes.add(process)
        try:
            code = process.wait()
        finally:
            _processes.discard(process)
    if code:
        reason = reported_error(log.read_text(encoding="utf-8", errors="replace"))
        error = BY_EXIT_CODE.get(code, InfrastructureError if code < 0 else CodlineError)
        raise error(f"{point.title}: {reason or f'it was killed or broke off ({code}); see {log}'}")


def terminate_workers() -> None:
    for process in list(_processes):
        process.terminate()


def read_curve(worktree: Path) -> list[dict[str, Any]]:
    """The learning curve of a finished campaign, one row per cycle."""
    pipeline = Pipeline(worktree)
    metrics = {cycle: read_json(pipeline.path("evaluate", "metrics", cycle)) for cycle in pipeline.cycles}
    return [
        {"cycle": cycle} | {key: values[key] for key in CURVE_KEYS if key in values}
        for cycle, values in metrics.items()
    ]


def point_environment(plan: StudyPlan, point: StudyPoint) -> dict[str, str]:
    """The environment of a point: its own .codline/, but the project's fork server, Prefect server and MLflow store."""
    environment = {key: value for key, value in os.environ.items() if key != "CODLINE_STATE_DIRECTORY"}
    socket = environment.get(fork_server.SOCKET)
    if socket and not Path(socket).is_absolute():  # it stays relative: the path of a socket may have 107 characters
        environment[fork_server.SOCKET] = os.path.relpath(socket, plan.worktree(point))
    tags = {f"codline.study.{plan.study.name}": point.arm, "codline.seed": str(point.seed)}
    return environment | {
        OWNER: str(os.getpid()),
        "MLFLOW_TRACKING_URI": absolute_tracking_uri(),
        "CODLINE_TRACKING_LOCK": str((state_directory.state_root() / "tracking.lock").resolve()),
        "CODLINE_TAGS": json.dumps(tags),
        TITLE: plan.title(point),
    }


def absolute_tracking_uri() -> str:
    """MLflow's address, valid in every directory."""
    address = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    kind, _, path = address.partition(":///")
    return f"{kind}:///{Path(path).resolve()}" if kind == "sqlite" else address


def create_mlflow_database() -> None:
    """Create MLflow's default database here, not in the worktree of the first point: its artifacts go next to it."""
    if is_tracking() and not os.environ.get("MLFLOW_TRACKING_URI") and not Path("mlflow.db").exists():
        subprocess.run([sys.executable, "-m", "codline.tracking", "init"], capture_output=True, check=False)
