"""Deployments without a work pool: one process that serves both flows."""

from typing import cast

from prefect import serve as serve_all
from prefect.deployments.runner import RunnerDeployment

from flows.campaign import campaign
from flows.cycle import cycle


def serve() -> None:
    serve_all(
        # Prefect types these for asynchronous callers too.
        cast(RunnerDeployment, campaign.to_deployment("local", description=campaign.description, concurrency_limit=1)),
        cast(RunnerDeployment, cycle.to_deployment("local", description=cycle.description, concurrency_limit=1)),
        pause_on_shutdown=False,
        print_starting_message=False,
    )
