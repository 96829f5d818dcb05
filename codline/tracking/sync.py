"""Bring MLflow up to what the files say. Any number of times, by any number of processes: the outcome is the same."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from codline.core.errors import BusyError
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking import parts
from codline.tracking.campaign import Campaign, Part, curve_points
from codline.tracking.lock_status import Lock
from codline.tracking.store import CAMPAIGN, CYCLE, PART, WHOLE, Changed, Points, Store

PATIENCE = 50.0  # seconds to wait for another process's turn: less than a stage waits for its follower
CURVES = {
    "accuracy": "accuracy",
    "mean_iou": "mean_iou",
    "loss": "loss",
    "calibration_error": "calibration_error",
    "spearman": "diagnose/spearman",
}  # the campaign's, of the cycles'


def sync(store: Store, pipeline: Pipeline, cycles: list[str], ran: str | None = None) -> Iterator[str]:
    """Yield what was done, a line for each cycle. `ran` is the stage that has just run, if one has."""
    campaign, lock = Campaign(pipeline), Lock(pipeline, ran)
    for cycle in cycles:
        with turn():
            done = sync_cycle(store, campaign, lock, cycle)
        yield f"{cycle}: {done}"
    with turn():
        sync_whole(store, campaign, lock)


def sync_cycle(store: Store, campaign: Campaign, lock: Lock, cycle: str) -> str:
    present = [part for part in campaign.parts(cycle) if part.present]
    current = {part.name: part.digest for part in present if lock.vouches(f"{part.stage}@{cycle}")}
    stale = ", ".join(part.name for part in present if part.name not in current)
    if not current:
        return f"out of date ({stale}): run dvc repro" if stale else "not run yet"
    run, replaced = cycle_run(store, campaign, cycle), False
    try:
        fresh = log_parts(store, campaign, cycle, run, current)
    except Changed:
        store.discard(run)
        run, replaced = cycle_run(store, campaign, cycle), True
        fresh = log_parts(store, campaign, cycle, run, current)
    logged = {key.removeprefix(PART) for key in run.data.tags} | current.keys()
    if campaign.needed(cycle) <= logged:
        store.settle(run, "FINISHED")
    words = f"{'replaced by' if replaced else 'logged'} {', '.join(fresh)}" if fresh else "up to date"
    return f"{words}; out of date ({stale}): run dvc repro" if stale else words


def log_parts(store: Store, campaign: Campaign, cycle: str, run: Run, current: dict[str, str]) -> list[str]:
    """Log what the run does not have. Changed is raised before anything is logged, and a part is marked only once it is there."""
    marks = {name: run.data.tags.get(PART + name) for name in current}
    if any(mark not in (None, current[name]) for name, mark in marks.items()):
        raise Changed
    fresh = [name for name, mark in marks.items() if mark is None]
    for name in fresh:
        parts.LOG[name](store, campaign, cycle, run)
        store.client.set_tag(run.info.run_id, PART + name, current[name])
    return fresh


def live(store: Store, pipeline: Pipeline, cycle: str, rows: list[dict[str, Any]]) -> Run:
    """Log the epochs that training has finished so far."""
    campaign = Campaign(pipeline)
    with turn():
        run = cycle_run(store, campaign, cycle)
        try:
            store.add(run, curve_points(rows))
        except Changed:
            store.discard(run)
            run = cycle_run(store, campaign, cycle)
            store.add(run, curve_points(rows))
        return run


def cycle_run(store: Store, campaign: Campaign, cycle: str) -> Run:
    """The run of this cycle, inside that of the campaign; made where missing."""
    runs = store.runs(campaign.key)
    whole = whole_run(store, campaign, runs.get(WHOLE))
    tags = {CAMPAIGN: campaign.key, CYCLE: cycle, MLFLOW_PARENT_RUN_ID: whole.info.run_id}
    run = runs.get(cycle) or store.client.create_run(store.experiment, run_name=cycle, tags=tags)
    state_directory.note("runs", cycle, {"experiment": store.experiment, "run": run.info.run_id})
    return store.with_params(run, campaign.params)


def whole_run(store: Store, campaign: Campaign, known: Run | None = None) -> Run:
    run = known or store.client.create_run(store.experiment, run_name=campaign.name, tags={CAMPAIGN: campaign.key})
    state_directory.note("runs", "campaign", {"experiment": store.experiment, "run": run.info.run_id})
    return store.with_params(run, campaign.params)


def sync_whole(store: Store, campaign: Campaign, lock: Lock) -> None:
    """The campaign's run shows its cycles' runs: accuracy by number of labels, the report, finished when they are."""
    runs = store.runs(campaign.key)
    known = runs.pop(WHOLE, None)
    if not runs and known is None:
        return
    points = learning_curves(
        [
            run
            for cycle, run in runs.items()
            if cycle not in campaign.pipeline.cycles or lock.vouches(f"evaluate@{cycle}")
        ]
    )
    whole = whole_run(store, campaign, known)
    try:
        store.add(whole, points, exact=True)
    except Changed:
        store.client.delete_run(whole.info.run_id)
        whole = whole_run(store, campaign)
        store.add(whole, points, exact=True)
    for run in runs.values():
        if run.data.tags.get(MLFLOW_PARENT_RUN_ID) != whole.info.run_id:
            store.client.set_tag(run.info.run_id, MLFLOW_PARENT_RUN_ID, whole.info.run_id)
    add_tags(store, whole)
    add_data(store, campaign, whole)
    add_report(store, campaign, lock, whole)
    finished = all(cycle in runs and runs[cycle].info.status == "FINISHED" for cycle in campaign.pipeline.cycles)
    store.settle(whole, "FINISHED" if finished else "RUNNING")


def learning_curves(runs: list[Run]) -> Points:
    """Points at the number of labels, of every cycle that is evaluated."""
    cycles = [(int(run.data.metrics["labels"]), run.data.metrics) for run in runs if "labels" in run.data.metrics]
    points = {
        name: {labels: metrics[key] for labels, metrics in cycles if key in metrics} for name, key in CURVES.items()
    }
    best = {labels: max(points["accuracy"][fewer] for fewer, _ in cycles if fewer <= labels) for labels, _ in cycles}
    return {name: found for name, found in points.items() if found} | {"best_accuracy": best}


def add_tags(store: Store, whole: Run) -> None:
    """What whoever started us calls the campaign: a study, its arm and seed. One campaign may be a point of several studies."""
    for key, value in json.loads(os.environ.get("CODLINE_TAGS", "{}")).items():
        if whole.data.tags.get(key) != value:
            store.client.set_tag(whole.info.run_id, key, value)


def add_data(store: Store, campaign: Campaign, whole: Run) -> None:
    paths = {role: campaign.pipeline.path("prepare", role) for role in ("pool", "test")}
    if not (whole.inputs and whole.inputs.dataset_inputs):
        parts.add_inputs(store, campaign, whole, **{role: path for role, path in paths.items() if path.exists()})


def add_report(store: Store, campaign: Campaign, lock: Lock, whole: Run) -> None:
    folder = campaign.pipeline.path("report", "report")
    report = Part("report", "report", tuple(sorted(path for path in folder.rglob("*") if path.is_file())))
    if report.sources and lock.vouches("report") and whole.data.tags.get(PART + "report") != report.digest:
        store.client.log_artifacts(whole.info.run_id, str(folder), "report")
        store.client.set_tag(whole.info.run_id, PART + "report", report.digest)


@contextmanager
def turn() -> Iterator[None]:
    """One process of this project at a time. The lock is the kernel's: it goes with the process that held it."""
    path = Path(
        os.environ.get("CODLINE_TRACKING_LOCK") or state_directory.root() / "tracking.lock"
    )  # the points of a study have one in common
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise BusyError(
                        f"{path}: another process has been logging to MLflow for {PATIENCE:.0f} s; try again when it is done"
                    ) from error
                time.sleep(0.05)
        yield
