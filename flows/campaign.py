"""The flow over all cycles of params.yaml. Open this first."""

from typing import Any

from prefect import flow
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from codline.core import params
from codline.orchestration import artifacts, dvc_lock, prefect_runs, workspace
from codline.runtime.pipeline import Pipeline
from flows.cycle import cycle, limited
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

    What is given here is written into params.yaml first, as `dvc exp run -S` does: the preset, and over it the rest; `overrides` has dotted keys,
    such as {"train.epochs": 10}.
    """
    with workspace.held(), prefect_runs.recorded(), limited(timeout_minutes):
        workspace.changed(changes(strategy, seed, cycles, overrides), preset)
        prepare()
        for name in Pipeline().cycles:
            cycle(name, timeout_minutes)
            artifacts.curve()
        dvc_lock.tidied()
        report()
        dvc_lock.tidied()


def changes(
    strategy: str | None, seed: int | None, cycles: int | None, overrides: dict[str, Any] | None
) -> dict[str, Any]:
    """Named parameters and overrides as one set of dotted keys."""
    named = {"score.strategy.name": strategy, "seed": seed} | (params.chain(cycles) if cycles else {})
    return {key: value for key, value in named.items() if value is not None} | (overrides or {})
