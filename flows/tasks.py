"""The tasks: each is one stage of dvc.yaml, brought up to date by DVC."""

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import UUID

from prefect import Task, get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State, TaskRun
from prefect.exceptions import MissingContextError
from prefect.tasks import exponential_backoff

from codline.core.errors import InfrastructureError
from codline.orchestration import workspace
from codline.orchestration.prefect_runs import GPU
from codline.runtime import state_directory

SLOTS = os.environ.get("CODLINE_SLOTS") != "off"  # off in the points of a study on a CPU: its --jobs is the limit there
Listener = Callable[[str, str, float], None]
listeners: list[Listener] = []  # told (stage, "started" | "ran" | "skipped" | "failed", seconds)


def worth_another_try(task: Task[..., Any], run: TaskRun, state: State) -> bool:  # noqa: ARG001 (Prefect's signature)
    """A killed or timed-out stage, or a lock: yes. A user's mistake: never."""
    failure = state.result(raise_on_failure=False)
    return isinstance(failure, InfrastructureError)


def stage(name: str, *tags: str, once: bool = False) -> Task[..., bool]:
    @task(
        name=name,
        task_run_name=name if once else f"{name}@{{cycle}}",
        tags=list(tags) if SLOTS else [],
        cache_policy=NO_CACHE,  # DVC is the cache
        retries=2,
        retry_delay_seconds=exponential_backoff(2),
        retry_condition_fn=worth_another_try,
        persist_result=False,
    )
    def run(cycle: str | None = None) -> bool:
        full = f"{name}@{cycle}" if cycle else name
        began = time.monotonic()
        tell(full, "started", 0.0)
        outcome = "failed"
        try:
            with progress(full) if GPU in tags else contextlib.nullcontext():
                outcome = "ran" if workspace.reproduce(full) else "skipped"
        finally:
            tell(full, outcome, time.monotonic() - began)
        return outcome == "ran"

    return run


def tell(full: str, outcome: str, seconds: float) -> None:
    for listener in listeners:
        listener(full, outcome, seconds)
    with contextlib.suppress(MissingContextError):
        if outcome == "ran":
            get_run_logger().info("%s done in %.1f s", full, seconds)
        elif outcome == "skipped":
            get_run_logger().info("%s is up to date", full)


@contextlib.contextmanager
def progress(full: str) -> Iterator[None]:
    """Show how far the stage is, on the run's page, from the notes it leaves."""
    over = threading.Event()
    watcher = threading.Thread(target=contextvars.copy_context().run, args=(follow, full, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(5)


def follow(full: str, over: threading.Event) -> None:
    artifact: UUID | None = None
    shown = -1.0
    while not over.wait(0.5):
        note = state_directory.read_note("progress", full)
        if note is None or (share := 100.0 * note["done"] / max(note["total"], 1)) == shown:
            continue
        with contextlib.suppress(Exception):  # a page that cannot be drawn must not stop the work
            if artifact is None:
                name = f"{full}: {note['total']} {note['unit']}"
                artifact = cast(
                    UUID, create_progress_artifact(share, key=full.replace("@", "-"), description=name)
                )  # typed for asynchronous callers too
            else:
                update_progress_artifact(artifact, share)
            shown = share
    if artifact is not None:
        with contextlib.suppress(Exception):
            update_progress_artifact(artifact, 100.0)


prepare = stage("prepare", once=True)
train = stage("train", GPU)
score = stage("score", GPU)
select = stage("select")
annotate = stage("annotate")
merge = stage("merge")
evaluate = stage("evaluate", GPU)
diagnose = stage("diagnose", GPU)
report = stage("report", once=True)
