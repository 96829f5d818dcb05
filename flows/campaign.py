"""The flow over all cycles of params.yaml. Open this first."""

from typing import Any

from prefect import flow
from prefect.client.schemas import State
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from codline.orchestration import answers, artifacts, dvc_lock, inputs
from codline.orchestration.dvc_stages import remove_outdated_cycles
from codline.orchestration.params_file import params_changes
from codline.orchestration.prefect_runs import recorded_run, rename_flow_run
from codline.orchestration.refused_params import campaign_params
from codline.orchestration.workspace import open_workspace
from codline.runtime.campaign_identity import current_campaign
from codline.runtime.pipeline import Pipeline
from flows.cycle import cycle, stage_timeout
from flows.tasks import is_waiting, prepare, report, scan, waiting_state


@flow(name="campaign", flow_run_name="campaign", persist_result=False)
def campaign(
    preset: str | None = None,
    strategy: str | None = None,
    seed: NonNegativeInt | None = None,
    cycles: PositiveInt | None = None,
    overrides: dict[str, Any] | None = None,
    timeout_minutes: PositiveFloat | None = None,
) -> State | None:
    """Run every cycle that is not up to date, until people have yet to label a query.

    The arguments are written into params.yaml first, as `dvc exp run -S` does: the preset, then the others over it.
    If a stage refuses them before any stage has run with them, params.yaml is put back as it was.
    `overrides` has dotted keys, such as {"train.epochs": 10}. `timeout_minutes` limits each stage.
    """
    changes = params_changes(strategy, seed, cycles, overrides)
    with (
        open_workspace() as workspace,
        recorded_run(),
        stage_timeout(timeout_minutes),
        campaign_params(workspace, changes, preset),
    ):
        rename_flow_run(current_campaign().title)
        answers.check_answers()
        inputs.remove_other_manifests()
        for name in Pipeline().inputs:
            scan(name)
        prepare()
        for name in Pipeline().cycles:
            state = cycle(name, timeout_minutes, return_state=True)
            state.result()  # raises if it has failed
            artifacts.publish_learning_curve(name)
            if is_waiting(state):
                remove_outdated_cycles()
                report()
                return waiting_state(state.message)
            if name not in Pipeline().queries:  # the last one, perhaps since the pool is used up
                break
        dvc_lock.tidy()  # before report, which shows every cycle that has outputs
        report()
        dvc_lock.tidy()
    return None
