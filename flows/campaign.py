"""The flow over all cycles of params.yaml. Open this first."""

from typing import Any

from prefect import flow
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from codline.core import params
from codline.orchestration import artifacts, dvc_lock
from codline.orchestration.params_file import update_params
from codline.orchestration.prefect_runs import recorded_run
from codline.orchestration.workspace import open_workspace
from codline.runtime.pipeline import Pipeline
from flows.cycle import cycle, stage_timeout
from flows.tasks import prepare, report


@flow(name="campaign", persist_result=False)
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
    `overrides` has dotted keys, such as {"train.epochs": 10}. `timeout_minutes` limits each stage.
    """
    with open_workspace(), recorded_run(), stage_timeout(timeout_minutes):
        update_params(params_changes(strategy, seed, cycles, overrides), preset)
        prepare()
        for name in Pipeline().cycles:
            cycle(name, timeout_minutes)
            artifacts.publish_learning_curve()
        dvc_lock.tidy()  # before report, which shows every cycle that has outputs
        report()
        dvc_lock.tidy()


def params_changes(
    strategy: str | None, seed: int | None, cycles: int | None, overrides: dict[str, Any] | None
) -> dict[str, Any]:
    """Named arguments and overrides as one set of dotted keys."""
    named = {"score.strategy.name": strategy, "seed": seed} | (params.cycle_chain(cycles) if cycles else {})
    return {key: value for key, value in named.items() if value is not None} | (overrides or {})
