"""Deployments: served by one process here, or run by the workers of a work pool on other machines."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from prefect import Flow, serve
from prefect.deployments.runner import RunnerDeployment
from prefect.runner.storage import GitRepository
from prefect.types.entrypoint import EntrypointType

from codline.core.errors import BusyError, InfrastructureError
from codline.orchestration.prefect_connection import prefect_connection
from codline.orchestration.prefect_runs import SERVE, end_served_run, mark_noted_run
from codline.orchestration.remote_results import check_remote
from codline.orchestration.work_pool import (
    HEARTBEAT_SECONDS,
    check_pool,
    deployment_name,
    pushed_code,
    restart_lost_runs,
)
from codline.orchestration.workspace import open_workspace
from flows.campaign import campaign
from flows.cycle import cycle
from flows.remote_campaign import remote_campaign


def serve_deployments(on_ready: Callable[[], None]) -> None:
    """Serve until interrupted, one run at a time; `on_ready` is called once the deployments can be run.

    The limit is Prefect's limit of this process. That of a deployment is kept by the server, where a killed process
    would keep its slot. Prefect serves in a thread, so that Ctrl-C and SIGTERM end a run here, without its grace time.
    """
    os.environ[SERVE] = str(os.getpid())
    deployments = [make_deployment(flow, "local") for flow in (campaign, cycle)]
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


def make_deployment(flow: Flow[..., Any], name: str, **settings: Any) -> RunnerDeployment:
    """Found by module: after a deployment to a work pool, Prefect resolves a file path without its directory."""
    module = EntrypointType.MODULE_PATH
    deployment = flow.to_deployment(name, description=flow.description, entrypoint_type=module, **settings)
    return cast(RunnerDeployment, deployment)  # typed for asynchronous callers too


def deploy_to_pool(pool: str) -> UUID:
    """Let the workers of a pool run campaigns of the last commit, each in a clone of its own; returns its id."""
    code = pushed_code()
    check_pool(pool)
    check_remote()
    environment = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS)}
    name = deployment_name(pool, code)
    deployment = make_deployment(remote_campaign, name, work_pool_name=pool, job_variables={"env": environment})
    deployment.storage = GitRepository(code.repository, commit_sha=code.commit)
    identifier = cast(UUID, deployment.apply())
    restart_lost_runs(identifier, name)
    return identifier
