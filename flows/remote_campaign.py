"""The flow of a campaign on a machine of a work pool, in a clone that Prefect has made there (`codline deploy`)."""

from typing import Any

from prefect import flow
from prefect.client.schemas import State
from prefect.runtime import flow_run
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from codline.orchestration import artifacts
from codline.orchestration.prefect_runs import mark_lost_children
from codline.orchestration.work_pool import REMOTE_CAMPAIGN
from codline.orchestration.worker_clone import prepare_clone
from codline.orchestration.workspace import open_workspace
from flows.campaign import campaign


@flow(name=REMOTE_CAMPAIGN, flow_run_name="campaign", persist_result=False)
def remote_campaign(
    params: str | None = None,
    preset: str | None = None,
    strategy: str | None = None,
    seed: NonNegativeInt | None = None,
    cycles: PositiveInt | None = None,
    overrides: dict[str, Any] | None = None,
    timeout_minutes: PositiveFloat | None = None,
) -> State | None:
    """Run a campaign of the deployed commit. `params` is the text of another params.yaml; the rest is as for campaign.

    What any machine has computed comes from the DVC remote, and what is computed goes there after every stage. So a run
    that is started again, on this machine or another one, goes on with the stage that was lost.
    """
    prepare_clone(params, starts=flow_run.run_count or 1)
    mark_lost_children()
    with open_workspace(shares_results=True):
        state = campaign.fn(preset, strategy, seed, cycles, overrides, timeout_minutes)
        artifacts.publish_lock()
    return state
