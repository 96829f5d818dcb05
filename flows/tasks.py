"""The tasks: each brings one stage of dvc.yaml up to date through DVC."""

import contextlib
import contextvars
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
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from codline.core.errors import InfrastructureError, WaitingForPeople
from codline.orchestration import workspace
from codline.orchestration.artifacts import artifact_key
from codline.runtime import state_directory
from codline.runtime.campaign_identity import current_campaign
from codline.runtime.log import stage_warnings
from codline.runtime.progress import worker_text

Listener = Callable[[str, str, float], None]
listeners: list[Listener] = []  # called with (stage, "started" | "ran" | "skipped" | "waits" | "failed", seconds)
WAITING = "WaitingForPeople"  # name of the state of tasks and flows that have ended because labels are missing


def is_retriable(task: Task[..., Any], run: TaskRun, state: State) -> bool:  # noqa: ARG001 (Prefect's signature)
    """Retry a stage that was killed or timed out, or met a lock; never a user's mistake."""
    return isinstance(state.result(raise_on_failure=False), InfrastructureError)


def waiting_state(message: str | None) -> State:
    """Not a failure, on Prefect's page or for `prefect deployment run --watch`."""
    return Completed(name=WAITING, message=message)


def is_waiting(state: State) -> bool:
    return state.name == WAITING


def stage_task(name: str, *, per_cycle: bool = True, runs_model: bool = False) -> Task[..., bool]:
    """A task that runs a stage. Each stage that runs a model takes a GPU of its own, if any (runtime/gpu_lock.py).

    No tags: Prefect would ask its server for a concurrency slot before each task, which takes up to two seconds.
    """

    @task(
        name=name,
        task_run_name=f"{name}@{{cycle}}" if per_cycle else name,
        cache_policy=NO_CACHE,  # DVC is the cache
        retries=2,
        retry_delay_seconds=exponential_backoff(2),
        retry_condition_fn=is_retriable,
        persist_result=False,
    )
    def run_stage(cycle: str | None = None) -> bool:
        stage = f"{name}@{cycle}" if cycle else name
        started, outcome = time.monotonic(), "failed"
        state_directory.delete_note("warnings", stage)
        notify(stage, "started", 0.0)
        try:
            with published_progress(stage) if runs_model else contextlib.nullcontext():
                outcome = "ran" if workspace.reproduce(stage) else "skipped"
        except WaitingForPeople as waiting:
            outcome = "waits"
            return cast(bool, waiting_state(str(waiting)))  # Prefect takes it as the state of the task
        finally:
            notify(stage, outcome, time.monotonic() - started)
        return outcome == "ran"

    return run_stage


def notify(stage: str, event: str, seconds: float) -> None:
    for listener in listeners:
        listener(stage, event, seconds)
    with contextlib.suppress(MissingContextError):
        for sentence in stage_warnings(stage) if event != "started" else ():
            get_run_logger().warning("%s: %s", stage, sentence)
        if event == "ran":
            get_run_logger().info("%s done in %.1f s", stage, seconds)
        elif event == "skipped":
            get_run_logger().info("%s is up to date", stage)


@contextlib.contextmanager
def published_progress(stage: str) -> Iterator[None]:
    """Show the stage's progress on the run's page, from its progress note."""
    finished = threading.Event()
    publish = contextvars.copy_context().run
    publisher = threading.Thread(target=publish, args=(publish_progress, stage, finished), daemon=True)
    publisher.start()
    try:
        yield
    finally:
        finished.set()
        publisher.join(5)


def publish_progress(stage: str, finished: threading.Event) -> None:
    artifact: UUID | None = None
    published = -1.0
    while not finished.wait(0.5):
        note = state_directory.read_note("progress", stage)
        if note is None or (percent := 100.0 * note["done"] / max(note["total"], 1)) == published:
            continue
        with contextlib.suppress(Exception):  # an artifact that cannot be published must not fail the stage
            if artifact is None:
                description = f"{current_campaign().title}: {stage}, {note['total']} {note['unit']}{worker_text(note)}"
                created = create_progress_artifact(percent, key=artifact_key(stage), description=description)
                artifact = cast(UUID, created)  # typed for asynchronous callers too
            else:
                update_progress_artifact(artifact, percent)
            published = percent
    if artifact is not None:
        with contextlib.suppress(Exception):
            update_progress_artifact(artifact, 100.0)


scan = stage_task("scan")  # takes the name of an input in place of a cycle
prepare = stage_task("prepare", per_cycle=False)
train = stage_task("train", runs_model=True)
score = stage_task("score", runs_model=True)
select = stage_task("select")
annotate = stage_task("annotate")
merge = stage_task("merge")
evaluate = stage_task("evaluate", runs_model=True)
diagnose = stage_task("diagnose", runs_model=True)
report = stage_task("report", per_cycle=False)
