"""Brings MLflow up to date with the campaign's files. Idempotent: any number of times, by any number of processes."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from codline.core.locks import file_lock
from codline.core.primary_metric import best_cycle, primary_key
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking import parts
from codline.tracking.campaign import Part, TrackedCampaign, curve_points
from codline.tracking.lock_status import LockStatus
from codline.tracking.runs import campaign_end, campaign_run, current_runs, cycle_end, cycle_run
from codline.tracking.store import CAMPAIGN_RUN, PART, MlflowStore, OutdatedRun, Points

LOCK_SECONDS = 50.0  # to wait for another process that is logging
# Metrics of the cycles' runs that the campaign's run has by number of labels.
LEARNING_CURVES = (
    "labels", "accuracy", "accuracy_low", "accuracy_high", "balanced_accuracy", "macro_f1", "validation_accuracy",
    "mean_iou", "mean_iou_low", "mean_iou_high", "validation_mean_iou", "loss", "calibration_error",
)  # fmt: skip


def sync(store: MlflowStore, pipeline: Pipeline, cycles: list[str], lock: LockStatus) -> Iterator[str]:
    """Log these cycles and the campaign's run; yield one line per cycle."""
    campaign = TrackedCampaign(pipeline)
    if not lock.may_log(campaign.data.stage, tuple(path for path in campaign.data.files if path.exists())):
        yield from (f"{cycle}: out of date (data): run dvc repro" for cycle in cycles)
        return
    for cycle in cycles:
        with exclusive():
            outcome = sync_cycle(store, campaign, lock, cycle)
        yield f"{cycle}: {outcome}"
    with exclusive():
        sync_campaign(store, campaign, lock)


def sync_cycle(store: MlflowStore, campaign: TrackedCampaign, lock: LockStatus, cycle: str) -> str:
    existing = [part for part in campaign.parts(cycle) if part.exists()]
    current = {part.name: part.digest for part in existing if lock.may_log(f"{part.stage}@{cycle}", part.files)}
    stale = ", ".join(part.name for part in existing if part.name not in current)
    if not current:
        return f"out of date ({stale}): run dvc repro" if stale else "not run yet"
    run, replaced = cycle_run(store, campaign, cycle), False
    try:
        logged = log_parts(store, campaign, cycle, run, current)
    except OutdatedRun:
        store.delete_run_and_models(run)
        run, replaced = cycle_run(store, campaign, cycle), True
        logged = log_parts(store, campaign, cycle, run, current)
    complete = {key.removeprefix(PART) for key in run.data.tags} | current.keys()
    if campaign.required_parts(cycle) <= complete:
        store.set_status(run, "FINISHED", cycle_end(campaign, cycle, run))
    outcome = f"{'replaced by' if replaced else 'logged'} {', '.join(logged)}" if logged else "up to date"
    return f"{outcome}; out of date ({stale}): run dvc repro" if stale else outcome


def log_parts(
    store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run, digests: dict[str, str]
) -> list[str]:
    """Log the parts that the run lacks, and tag each once it is complete. Raises OutdatedRun if one has changed."""
    logged = {name: run.data.tags.get(PART + name) for name in digests}
    if any(digest not in (None, digests[name]) for name, digest in logged.items()):
        raise OutdatedRun
    missing = [name for name, digest in logged.items() if digest is None]
    for name in missing:
        parts.LOGGERS[name](store, campaign, cycle, run)
        store.client.set_tag(run.info.run_id, PART + name, digests[name])
    return missing


def log_epochs(store: MlflowStore, pipeline: Pipeline, cycle: str, epochs: list[dict[str, Any]], status: str) -> None:
    """Log the epochs that a running training has finished."""
    campaign = TrackedCampaign(pipeline)
    with exclusive():
        run = cycle_run(store, campaign, cycle)
        try:
            store.log_points(run, curve_points(epochs))
        except OutdatedRun:
            store.delete_run_and_models(run)
            run = cycle_run(store, campaign, cycle)
            store.log_points(run, curve_points(epochs))
        store.set_status(run, status)


def sync_campaign(store: MlflowStore, campaign: TrackedCampaign, lock: LockStatus) -> None:
    """Log learning curves by number of labels, datasets and the report; set the status by that of the cycles."""
    runs = current_runs(store, campaign)
    if not runs:
        return
    run = campaign_run(store, campaign, runs)
    runs.pop(CAMPAIGN_RUN, None)
    cycles = campaign.pipeline.cycles
    current = [run for cycle, run in runs.items() if cycle not in cycles or lock.is_current(f"evaluate@{cycle}")]
    points = learning_curves([run.data.metrics for run in current])
    try:
        store.log_points(run, points, exact=True)
    except OutdatedRun:
        store.client.delete_run(run.info.run_id)
        run = campaign_run(store, campaign, runs)
        store.log_points(run, points, exact=True)
    for nested in runs.values():
        if nested.data.tags.get(MLFLOW_PARENT_RUN_ID) != run.info.run_id:
            store.client.set_tag(nested.info.run_id, MLFLOW_PARENT_RUN_ID, run.info.run_id)
    log_dataset_inputs(store, campaign, run)
    log_params_file(store, campaign, run)
    log_report(store, campaign, lock, run)
    finished = {cycle for cycle, nested in runs.items() if nested.info.status == "FINISHED"}
    if finished.issuperset(cycles):
        store.set_status(run, "FINISHED", campaign_end(runs.values()))
    else:
        store.set_status(run, "RUNNING")


def learning_curves(metrics: list[dict[str, float]]) -> Points:
    """One point per evaluated cycle, at its number of labels."""
    evaluated = [of_cycle for of_cycle in metrics if "labels" in of_cycle]
    cycles = {int(of_cycle["labels"]): of_cycle for of_cycle in sorted(evaluated, key=itemgetter("labels"))}
    names = {name: name for name in LEARNING_CURVES}
    names |= {name: f"diagnose/{name}" for name in ("loss_ratio", "spearman")}
    curves = {
        name: {labels: of_cycle[key] for labels, of_cycle in cycles.items() if key in of_cycle}
        for name, key in names.items()
    }
    return {name: curve for name, curve in curves.items() if curve} | best_curve(cycles)


def best_curve(cycles: dict[int, dict[str, float]]) -> Points:
    """The primary test metric of the model that the validation images choose among the cycles so far."""
    if not cycles:
        return {}
    by_name = {str(labels): metrics for labels, metrics in cycles.items()}
    key = primary_key(next(iter(cycles.values())))
    best = {labels: best_cycle(dict(islice(by_name.items(), i + 1))) for i, labels in enumerate(cycles)}
    return {f"best_{key}": {labels: by_name[chosen][key] for labels, chosen in best.items()}}


def log_dataset_inputs(store: MlflowStore, campaign: TrackedCampaign, run: Run) -> None:
    files = {name: campaign.pipeline.path("prepare", name) for name in ("pool", "validation", "test")}
    if not (run.inputs and run.inputs.dataset_inputs):
        parts.log_inputs(store, campaign, run, files)


def log_params_file(store: MlflowStore, campaign: TrackedCampaign, run: Run) -> None:
    params = Part("params", "", (campaign.pipeline.root / "params.yaml",))
    if run.data.tags.get(PART + params.name) != params.digest:
        store.client.log_artifact(run.info.run_id, str(params.files[0]))
        store.client.set_tag(run.info.run_id, PART + params.name, params.digest)


def log_report(store: MlflowStore, campaign: TrackedCampaign, lock: LockStatus, run: Run) -> None:
    report = report_part(campaign)
    if not report.files or not lock.may_log(report.stage, report.files):
        return
    if run.data.tags.get(PART + "report") != report.digest:
        store.client.log_artifacts(run.info.run_id, str(campaign.pipeline.path("report", "report")), "report")
        store.client.set_tag(run.info.run_id, PART + "report", report.digest)


def report_part(campaign: TrackedCampaign) -> Part:
    files = (path for path in campaign.pipeline.path("report", "report").rglob("*") if path.is_file())
    return Part("report", "report", tuple(sorted(files)))


def exclusive() -> AbstractContextManager[None]:
    """Lock under which one process logs at a time; the campaigns of a study share it."""
    path = Path(os.environ.get("CODLINE_TRACKING_LOCK") or state_directory.state_root() / "tracking.lock")
    busy = f"{path}: another process has been logging to MLflow for {LOCK_SECONDS:.0f} s; try again when it is done"
    return file_lock(path, busy=busy, wait=LOCK_SECONDS)
