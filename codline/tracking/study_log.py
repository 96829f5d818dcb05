"""Logs the finished points of a study to MLflow: one run per point, with the curves, the datasets and the report.

One process for all points of a study, which reads one JSON line per point on standard input: its directory, and tags.
The runs of its cycles and their models are left to `codline track` in that directory: they take ten times as long.
"""

import json
import os
import signal
import sys
from typing import Any

from mlflow.entities import RunTag

from codline.core.errors import CodlineError
from codline.runtime import stage_times, state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking import sync
from codline.tracking.campaign import Part, TrackedCampaign
from codline.tracking.runs import campaign_run, current_runs, to_milliseconds
from codline.tracking.store import CAMPAIGN_RUN, PART, MlflowStore, OutdatedRun, mlflow_errors

LOGGED = "logged"  # kind of the note of a point that has been logged


def log_points() -> None:
    """Log until standard input ends. Once MLflow cannot be reached, nothing more is tried and the reason is printed."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")  # MLflow's default is two minutes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the study too, which then ends this process
    failed, reason, store = 0, "", None
    for line in sys.stdin:
        try:
            if not reason:
                with mlflow_errors():
                    store = store or open_store()
                    log_point(store, **json.loads(line))
        except CodlineError as error:
            reason = str(error).removesuffix("; run `codline track` later")
        except Exception as error:
            reason = f"unexpected {type(error).__name__}: {error}"
        failed += bool(reason)
    if reason:
        sys.stderr.write(f"{failed} points were not logged to MLflow: {reason}; run the study again to log them\n")


def open_store() -> MlflowStore:
    with sync.exclusive():  # two processes that create the database at once would fail
        return MlflowStore()


def log_point(store: MlflowStore, directory: str, tags: dict[str, str]) -> None:
    os.chdir(directory)
    campaign = TrackedCampaign(Pipeline())
    points = sync.learning_curves([cycle_metrics(campaign, cycle) for cycle in campaign.pipeline.cycles])
    with sync.exclusive():
        run = campaign_run(store, campaign, current_runs(store, campaign))
        try:
            store.log_points(run, points, exact=True)
        except OutdatedRun:
            store.client.delete_run(run.info.run_id)
            runs = current_runs(store, campaign)
            runs.pop(CAMPAIGN_RUN, None)
            run = campaign_run(store, campaign, runs)
            store.log_points(run, points, exact=True)
        sync.log_dataset_inputs(store, campaign, run)
        params = Part("params", "", (campaign.pipeline.root / "params.yaml",))
        report = sync.report_part(campaign)
        if run.data.tags.get(PART + report.name) != report.digest:
            store.client.log_artifact(run.info.run_id, str(params.files[0]))
            store.client.log_artifacts(run.info.run_id, str(campaign.pipeline.path("report", "report")), "report")
        tags |= {PART + part.name: part.digest for part in (params, report)}
        store.client.log_batch(run.info.run_id, tags=[RunTag(*tag) for tag in tags.items()])
        span = stage_times.span_of(campaign.pipeline.stage_names(), campaign.key)
        store.set_status(run, "FINISHED", span and to_milliseconds(span.end))
    state_directory.write_note(LOGGED, "campaign", {"run": run.info.run_id})


def cycle_metrics(campaign: TrackedCampaign, cycle: str) -> dict[str, Any]:
    splits = list(campaign.metrics(cycle).values())
    diagnosed = [campaign.diagnostics(cycle)] if cycle in campaign.pipeline.queries else []
    return {key: values[0] for points in splits + diagnosed for key, values in points.items()}
