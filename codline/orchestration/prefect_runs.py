"""Flow runs on Prefect's page: named for what they are, and marked as crashed by the next one if they were killed."""

import contextlib
import os
from collections.abc import Iterator
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Crashed

from codline.core.errors import CodlineError
from codline.runtime import state_directory
from codline.runtime.campaign_identity import SEPARATOR, current_campaign


@contextlib.contextmanager
def recorded_run(name: str = "run") -> Iterator[None]:
    """Note the flow run that works in this directory under this name; mark a killed predecessor as crashed."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.parent_task_run_id is not None:
        yield
        return
    killed = state_directory.read_note("flow", name)
    if killed is not None:
        with get_client(sync_client=True) as client:
            mark_crashed(client, UUID(killed["id"]))
    note = {"id": str(context.flow_run.id), "process": os.getpid()}
    state_directory.write_note("flow", name, note, durable=True)
    try:
        yield
    finally:
        state_directory.delete_note("flow", name)


def rename_flow_run(name: str) -> None:
    """Rename the running flow run. Its name cannot be known before if the flow itself writes params.yaml."""
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None and context.flow_run.name != name:
        with get_client(sync_client=True) as client:
            client.update_flow_run(context.flow_run.id, name=name)


def cycle_run_name() -> str:
    """For example `digits · cod · seed 0 · c3`."""
    cycle = str(runtime.flow_run.parameters["cycle"])
    try:
        return SEPARATOR.join((current_campaign().flow_title, cycle))
    except CodlineError:  # the flow is about to fail with it
        return cycle


def mark_crashed(client: SyncPrefectClient, flow_run: UUID) -> None:
    """Mark a flow run, its nested flow runs and their tasks as crashed where Prefect still shows them as running."""
    crashed: State = Crashed(message="its process was killed")
    runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run])))
    parent = FlowRunFilterParentFlowRunId(any_=[flow_run])
    runs += client.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=parent))
    for run in runs:
        for task in client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))):
            if task.state is not None and not task.state.is_final():
                client.set_task_run_state(task.id, crashed)
        if run.state is not None and not run.state.is_final():
            client.set_flow_run_state(run.id, crashed)
