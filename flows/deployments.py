"""Serves the flows as deployments from one process, without a work pool."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, cast

from prefect import Flow, serve
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from codline.core.errors import BusyError, InfrastructureError
from codline.orchestration.prefect_connection import prefect_connection
from codline.orchestration.prefect_runs import SERVE, end_served_run, mark_noted_run
from codline.orchestration.workspace import open_workspace
from flows.campaign import campaign
from flows.cycle import cycle


def serve_deployments(on_ready: Callable[[], None]) -> None:
    """Serve until interrupted, one run at a time; `on_ready` is called once the deployments can be run.

    The limit is Prefect's limit of this process. That of a deployment is kept by the server, where a killed process
    would keep its slot. Prefect serves in a thread, so that Ctrl-C and SIGTERM end a run here, without its grace time.
    """
    os.environ[SERVE] = str(os.getpid())
    deployments = [local_deployment(flow) for flow in (campaign, cycle)]
    settings = {"pause_on_shutdown": False, "print_starting_message": False, "limit": 1}
    logging.getLogger("prefect.runner").setLevel(logging.WARNING)  # it reports waiting runs every second
    runner = threading.Thread(target=serve, args=deployments, kwargs=settings, daemon=True)
    with prefect_connection(), contextlib.suppress(KeyboardInterrupt):
        with contextlib.suppress(BusyError), open_workspace():  # nothing runs here
            mark_noted_run()
        for deployment in deployments:
            deployment.apply()  # serve() applies them too, but does not tell when it has
        runner.start()
        on_ready()
        try:
            runner.join()
            raise InfrastructureError("Prefect has stopped serving the flows; see the lines above")
        finally:
            end_served_run()


def local_deployment(flow: Flow[..., Any]) -> RunnerDeployment:
    """Found by module: once `prefect deploy` has run here, Prefect resolves a file path without its directory."""
    deployment = flow.to_deployment("local", description=flow.description, entrypoint_type=EntrypointType.MODULE_PATH)
    return cast(RunnerDeployment, deployment)  # typed for asynchronous callers too
