"""Prefect's memory of our runs: limits that exist, and no run that is said to go on after its process died."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
    TaskRunFilterTags,
)
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from codline.runtime import state_directory

GPU = "gpu"  # tag of the tasks that run a model: one at a time per GPU, or per core where there is none


@contextlib.contextmanager
def recorded(name: str = "run") -> Iterator[None]:
    """Note which flow run works in this directory, under this name; if the last one was killed, tell Prefect so, which frees its concurrency slots."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.parent_task_run_id is not None:
        yield
        return
    with get_client(sync_client=True) as client:
        limit(client)
        last = state_directory.read_note("flow", name)
        if last is not None:
            bury(client, UUID(last["id"]))
            recount(client)
    state_directory.note("flow", name, {"id": str(context.flow_run.id), "process": os.getpid()}, durable=True)
    try:
        yield
    finally:
        state_directory.note("flow", name, None)


def limited() -> None:
    with get_client(sync_client=True) as client:
        limit(client)


def limit(client: SyncPrefectClient) -> None:
    """One model task per GPU at a time, or per core where there is none, unless somebody chose another number."""
    try:
        client.read_global_concurrency_limit_by_name(f"tag:{GPU}")
    except ObjectNotFound:
        client.create_concurrency_limit(tag=GPU, concurrency_limit=places())


def recount(client: SyncPrefectClient) -> None:
    """Set the slots in use to the tasks that really run: Prefect keeps its leases in memory, and a slot whose lease is lost is never given back."""
    running = TaskRunFilter(
        tags=TaskRunFilterTags(all_=[GPU]),
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])),
    )
    busy = len(client.read_task_runs(task_run_filter=running))
    client.update_global_concurrency_limit(f"tag:{GPU}", GlobalConcurrencyLimitUpdate(active_slots=busy))


def places() -> int:
    return gpus() or os.cpu_count() or 1


def gpus() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return len(listed.splitlines())


def bury(client: SyncPrefectClient, dead: UUID) -> None:
    """Mark a flow run, the flow runs inside it and their tasks as crashed where Prefect still believes them running."""
    family = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[dead])))
    family += client.read_flow_runs(
        flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[dead]))
    )
    for run in family:
        for task in client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))):
            if task.state is not None and not task.state.is_final():
                client.set_task_run_state(task.id, Crashed(message="its process was killed"))
        if run.state is not None and not run.state.is_final():
            client.set_flow_run_state(run.id, Crashed(message="its process was killed"))
