"""The flow of one cycle: train, score the pool, select, annotate, merge; evaluate and diagnose in parallel."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from prefect import flow, get_run_logger
from prefect.client.schemas import State
from pydantic import PositiveFloat

from codline.core import params_errors
from codline.core.errors import PoolUsedUp, UserError, first_names
from codline.orchestration import answers, artifacts
from codline.orchestration.params_file import end_campaign_at
from codline.orchestration.prefect_runs import cycle_run_name, recorded_run
from codline.orchestration.workspace import open_workspace
from codline.runtime.pipeline import Pipeline
from flows.tasks import annotate, diagnose, evaluate, is_waiting, merge, score, select, train, waiting_state


@flow(name="cycle", flow_run_name=cycle_run_name, persist_result=False)
def cycle(cycle: str = "c1", timeout_minutes: PositiveFloat | None = None) -> State | None:
    """Bring one cycle up to date, unless people have yet to label its query. `timeout_minutes` limits each stage."""
    with open_workspace(), recorded_run(), stage_timeout(timeout_minutes):
        check_cycle(cycle)
        train(cycle)
        evaluation = evaluate.submit(cycle)
        if cycle in Pipeline().queries and has_candidates(cycle):  # every cycle but the last
            select(cycle)
            diagnosis = diagnose.submit(cycle)
            answers.hand_out_query(cycle)
            annotation = cast(State, annotate(cycle, return_state=True))  # typed for calls without it
            annotation.result()  # raises if it has failed
            if is_waiting(annotation):
                evaluation.result()
                diagnosis.result()
                return waiting_state(annotation.message)
            merge(cycle)
            artifacts.publish_query_images(cycle)
            diagnosis.result()
        evaluation.result()
        artifacts.publish_mlflow_link(cycle)
    return None


def has_candidates(cycle: str) -> bool:
    """Score the pool. If all of it is labelled, this cycle becomes the last one: the others could select nothing."""
    try:
        score(cycle)
    except PoolUsedUp:
        others = end_campaign_at(cycle)
        ended = f"every image of the pool has a label, so {cycle} is the last cycle"
        sentence = f"{ended}; params.yaml has no {first_names(others)} any more"
        logging.getLogger("codline").warning(sentence)
        get_run_logger().warning(sentence)
        return False
    return True


def check_cycle(cycle: str) -> None:
    """Refuse an unknown cycle, and one whose predecessor is not finished."""
    pipeline = Pipeline()
    if cycle not in pipeline.cycles:
        raise UserError(f"cycle: found {cycle!r}{params_errors.suggestion(cycle, pipeline.cycles)}")
    labeled = pipeline.path("train", "labeled", cycle)
    if not labeled.exists():
        raise UserError(f"cycle {cycle} needs {labeled}, which does not exist: run the previous cycle or the campaign")


@contextmanager
def stage_timeout(minutes: float | None) -> Iterator[None]:
    """Limit the time of each stage, through its environment. Inside a campaign, its limit applies again afterwards."""
    before = os.environ.pop("CODLINE_TIMEOUT", None)
    if minutes is not None:
        os.environ["CODLINE_TIMEOUT"] = str(60 * minutes)
    try:
        yield
    finally:
        os.environ.pop("CODLINE_TIMEOUT", None)
        if before is not None:
            os.environ["CODLINE_TIMEOUT"] = before
