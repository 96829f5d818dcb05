"""Serves the flows as deployments from one process, without a work pool."""

from collections.abc import Callable
from typing import Any, cast

from prefect import Flow, serve
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from flows.campaign import campaign
from flows.cycle import cycle


def serve_deployments(on_ready: Callable[[], None]) -> None:
    """Serve until interrupted; `on_ready` is called once the deployments can be run."""
    deployments = [local_deployment(flow) for flow in (campaign, cycle)]
    for deployment in deployments:
        deployment.apply()  # serve() applies them too, but does not tell when it has
    on_ready()
    serve(*deployments, pause_on_shutdown=False, print_starting_message=False)


def local_deployment(flow: Flow[..., Any]) -> RunnerDeployment:
    """Found by module: once `prefect deploy` has run here, Prefect resolves a file path without its directory."""
    deployment = flow.to_deployment(
        "local", description=flow.description, concurrency_limit=1, entrypoint_type=EntrypointType.MODULE_PATH
    )
    return cast(RunnerDeployment, deployment)  # typed for asynchronous callers too
