"""Deployments without a work pool: one process that serves both flows."""

from prefect import serve as serve_all

from flows.campaign import campaign
from flows.cycle import cycle


def serve() -> None:
    serve_all(
        campaign.to_deployment("local", description=campaign.description, concurrency_limit=1),
        cycle.to_deployment("local", description=cycle.description, concurrency_limit=1),
        pause_on_shutdown=False,
        print_starting_message=False,
    )
