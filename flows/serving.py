"""Deployments without a work pool: one process that serves both flows."""

from typing import Any, cast

from prefect import Flow, serve as serve_all
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from flows.campaign import campaign
from flows.cycle import cycle


def serve() -> None:
    serve_all(*(deployed(flow) for flow in (campaign, cycle)), pause_on_shutdown=False, print_starting_message=False)


def deployed(flow: Flow[..., Any]) -> RunnerDeployment:
    """By the name of its module: where `prefect deploy` has been, Prefect forgets to say in which folder a file would be."""
    found = flow.to_deployment("local", description=flow.description, concurrency_limit=1, entrypoint_type=EntrypointType.MODULE_PATH)
    return cast(RunnerDeployment, found)  # Prefect types it for asynchronous callers too
