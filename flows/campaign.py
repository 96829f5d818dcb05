"""The flow over all cycles of params.yaml. Open this first."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from codline.core.errors import DataError
from codline.orchestration import answers, artifacts, dvc_lock, inputs
from codline.orchestration.dvc_stages import remove_outdated_cycles
from codline.orchestration.params_file import params_changes
from codline.orchestration.prefect_runs import recorded_run, rename_flow_run
from codline.orchestration.refused_params import campaign_params
from codline.orchestration.workspace import open_workspace
from codline.runtime.campaign_identity import current_campaign
from codline.runtime.pipeline import Pipeline
from flows.cycle import cycle, stage_timeout
from flows.tasks import evaluate, prepare, report, scan


@flow(name="campaign", flow_run_name="campaign", persist_result=False)
def campaign(
    preset: str | None = None,
    strategy: str | None = None,
    seed: NonNegativeInt | None = None,
    cycles: PositiveInt | None = None,
    overrides: dict[str, Any] | None = None,
    timeout_minutes: PositiveFloat | None = None,
) -> None:
    """Run every cycle that is not up to date.

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
        rename_flow_run(current_campaign().flow_title)
        answers.check_answers()
        inputs.remove_other_manifests()
        for name in Pipeline().inputs:
            scan(name)
        prepare()
        for name in Pipeline().cycles:
            with reported_while_waiting(name):
                cycle(name, timeout_minutes)
            artifacts.publish_learning_curve(name)
        dvc_lock.tidy()  # before report, which shows every cycle that has outputs
        report()
        dvc_lock.tidy()


@contextmanager
def reported_while_waiting(name: str) -> Iterator[None]:
    """Where the campaign stops because people have yet to label the query of `name`, report on the cycles so far."""
    try:
        yield
    except DataError:
        pipeline = Pipeline()
        if pipeline.params["annotate"]["annotator"]["name"] == "people":
            remove_outdated_cycles()
            if pipeline.path("annotate", "query", name).exists():  # it is current: only its labels are missing
                evaluate(name)
                report()
        raise
