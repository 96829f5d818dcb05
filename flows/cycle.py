"""The flow of one cycle: train, score the unlabelled pool, select, annotate, merge; evaluate and diagnose beside them."""

import os

from prefect import flow
from pydantic import PositiveFloat

from codline.core import params
from codline.core.errors import UserError
from codline.orchestration import artifacts, prefect_runs, workspace
from codline.runtime.pipeline import Pipeline
from flows.tasks import annotate, diagnose, evaluate, merge, score, select, train


@flow(name="cycle", flow_run_name="{cycle}", persist_result=False)
def cycle(cycle: str = "c1", timeout_minutes: PositiveFloat | None = None) -> None:
    """Bring one cycle up to date. `timeout_minutes` is the most that any one stage may take."""
    with workspace.held(), prefect_runs.recorded(), limited(timeout_minutes):
        asks = ready(cycle)
        train(cycle)
        if not asks:
            evaluate(cycle)
        else:
            score(cycle)
            measured = evaluate.submit(cycle)
            select(cycle)
            annotate(cycle)
            examined = diagnose.submit(cycle)
            merge(cycle)
            artifacts.query(cycle)
            examined.result()
            measured.result()
        artifacts.link(cycle)


def ready(cycle: str) -> bool:
    """Refuse an unknown cycle, or one whose predecessor is not finished; say whether this one asks for labels."""
    pipeline = Pipeline()
    if cycle not in pipeline.cycles:
        raise UserError(f"cycle: found {cycle!r}{params.near(cycle, pipeline.cycles)}")
    labeled = pipeline.path("train", "labeled", cycle)
    if not labeled.exists():
        raise UserError(
            f"cycle {cycle} needs {labeled}, which is not there yet: run the cycle before it, or the campaign"
        )
    return cycle in pipeline.queries


class limited:  # noqa: N801 (used as a statement)
    """The most seconds that a stage may take, told to it through its environment."""

    def __init__(self, minutes: float | None) -> None:
        self.minutes = minutes

    def __enter__(self) -> None:
        if self.minutes is not None:
            os.environ["CODLINE_TIMEOUT"] = str(60 * self.minutes)

    def __exit__(self, *_: object) -> None:
        if self.minutes is not None:
            os.environ.pop("CODLINE_TIMEOUT", None)
