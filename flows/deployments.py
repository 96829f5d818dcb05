"""Deployments without a work pool: one process that serves both flows."""

from collections.abc import Callable
from typing import Any, cast

from prefect import Flow, serve as serve_all
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from flows.campaign import campaign
from flows.cycle import cycle


def serve(ready: Callable[[], None]) -> None:
    """Until it is interrupted; `ready` is called when runs can be asked for."""
    deployments = [deployed(flow) for flow in (campaign, cycle)]
    for deployment in deployments:
        deployment.apply()  # serve_all does it again, a fifth of a second, and tells nobody when it has
    ready()
    serve_all(*deployments, pause_on_shutdown=False, print_starting_message=False)


def deployed(flow: Flow[..., Any]) -> RunnerDeployment:
    """By the name of its module: where `prefect deploy` has been, Prefect forgets to say in which folder a file would be."""
    found = flow.to_deployment(
        "local", description=flow.description, concurrency_limit=1, entrypoint_type=EntrypointType.MODULE_PATH
    )
    return cast(RunnerDeployment, found)  # Prefect types it for asynchronous callers too
