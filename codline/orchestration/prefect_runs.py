"""Flow runs on Prefect's page: named for what they are, and marked as crashed if they were killed."""

import contextlib
import os
import signal
from collections.abc import Iterator
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Crashed

from codline.core.errors import CodlineError
from codline.orchestration.prefect_connection import prefect_connection
from codline.runtime import state_directory
from codline.runtime.campaign_identity import SEPARATOR, current_campaign
from codline.runtime.process_lifetime import end_with

SERVE = "CODLINE_SERVE"  # environment variable: process id of the `codline serve` that has started a flow run


@contextlib.contextmanager
def recorded_run(name: str = "run") -> Iterator[None]:
    """Note the flow run that works in this directory under this name; mark a killed predecessor as crashed.

    Ends this process if Prefect's server is lost, or the `codline serve` that it belongs to.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.parent_task_run_id is not None:
        yield
        return
    with prefect_connection():
        mark_noted_run(name)
        serve = int(os.environ.get(SERVE, 0))
        note = {"id": str(context.flow_run.id), "process": os.getpid(), "serve": serve}
        state_directory.write_note("flow", name, note, durable=True)
        if serve:
            end_with(serve)
        try:
            yield
        finally:
            state_directory.delete_note("flow", name)


def mark_noted_run(name: str = "run") -> None:
    """Mark the noted flow run as crashed. Its process has ended: a flow deletes its note."""
    if (note := state_directory.read_note("flow", name)) is not None:
        with get_client(sync_client=True) as client:
            mark_crashed(client, UUID(note["id"]))
        state_directory.delete_note("flow", name)


def end_served_run() -> None:
    """In `codline serve`: end the flow run that it has started, if there is one, and mark it as crashed."""
    note = state_directory.read_note("flow", "run")
    if note is not None and note.get("serve") == os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.kill(note["process"], signal.SIGKILL)
        mark_noted_run()


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
        return SEPARATOR.join((current_campaign().title, cycle))
    except CodlineError:  # the flow is about to fail with it
        return cycle


def mark_crashed(client: SyncPrefectClient, flow_run: UUID) -> None:
    """Mark a flow run, its nested flow runs and their tasks as crashed where Prefect still shows them as running."""
    crashed: State = Crashed(message="its process was killed")
    known = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run])))
    for run in [*known, *children(client, flow_run)]:  # it may be of another server, which this one does not know
        mark_tasks_crashed(client, run.id)
        if run.state is not None and not run.state.is_final():
            client.set_flow_run_state(run.id, crashed)


def children(client: SyncPrefectClient, flow_run: UUID) -> list[FlowRun]:
    parent = FlowRunFilterParentFlowRunId(any_=[flow_run])
    return client.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=parent))


def mark_tasks_crashed(client: SyncPrefectClient, flow_run: UUID) -> None:
    crashed: State = Crashed(message="its process was killed")
    for task in client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))):
        if task.state is not None and not task.state.is_final():
            client.set_task_run_state(task.id, crashed)


def mark_lost_children() -> None:
    """In a flow run that is started again: mark what it had started before, on a machine that was lost, as crashed."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.run_count < 2:
        return
    with get_client(sync_client=True) as client:
        mark_tasks_crashed(client, context.flow_run.id)
        for child in children(client, context.flow_run.id):
            mark_crashed(client, child.id)
