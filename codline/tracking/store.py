"""MLflow's runs and metrics: finds or creates a run, and logs only what it lacks."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException

from codline.tracking.address import tracking_uri, unreachable
from codline.tracking.database import prepare_mlflow_database
from codline.tracking.run_list import saved_views

Points = dict[str, dict[int, float]]  # {metric: {step: value}}
# Tags of runs.
CAMPAIGN, CYCLE, DATA, PART = "codline.campaign", "codline.cycle", "codline.data", "codline.part."
Dataset = tuple[str | None, str | None]  # name and digest, as in the run's inputs
NO_DATASET: Dataset = (None, None)
CAMPAIGN_RUN = ""  # key of the campaign's own run, among those of its cycles
REQUEST_LIMIT = 1000  # points or runs per request


class OutdatedRun(Exception):  # noqa: N818 (not an error: the files have changed since)
    """The run contains other values than the files."""


class MlflowStore:
    """An experiment on the MLflow server, or in the database, at tracking_uri()."""

    def __init__(self) -> None:
        prepare_mlflow_database()
        mlflow.set_tracking_uri(tracking_uri())
        self.client = MlflowClient()
        self.experiment = self.experiment_id(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "codline")

    def experiment_id(self, name: str) -> str:
        """The experiment of this name, created if missing, with the views of its run list."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            artifacts = None if tracking_uri().startswith("http") else "mlartifacts"  # a server has its own location
            kind = {"mlflow.experimentKind": "custom_model_development"}  # which of MLflow's pages to show
            return self.client.create_experiment(name, artifacts, kind | saved_views())
        for tag, view in saved_views().items():
            if tag not in experiment.tags:
                self.client.set_experiment_tag(experiment.experiment_id, tag, view)
        return str(experiment.experiment_id)

    def runs(self, campaign: str) -> dict[str, Run]:
        """{cycle: run}, and the campaign's own run under CAMPAIGN_RUN.

        Two machines without a common lock can create the same run twice: the later one is deleted.
        """
        runs: dict[str, Run] = {}
        query, order = f"tags.`{CAMPAIGN}` = '{campaign}'", ["attributes.start_time ASC", "attributes.run_id ASC"]
        for run in self.client.search_runs([self.experiment], query, max_results=REQUEST_LIMIT, order_by=order):
            if runs.setdefault(run.data.tags.get(CYCLE, CAMPAIGN_RUN), run) is not run:
                self.delete_run_and_models(run)
        return runs

    def with_params(self, run: Run, params: dict[str, str]) -> Run:
        """The run, once it has all parameters: a kill may have come between its creation and theirs."""
        if missing := [Param(key, value) for key, value in params.items() if key not in run.data.params]:
            self.client.log_batch(run.info.run_id, params=missing)
        return run

    def delete_run_and_models(self, run: Run) -> None:
        """The run is deleted last, so that after a kill it is found and deleted again."""
        for version in self.client.search_model_versions(f"run_id = '{run.info.run_id}'"):
            self.client.delete_model_version(version.name, version.version)
        for model in self.client.search_logged_models([self.experiment], f"source_run_id = '{run.info.run_id}'"):
            self.client.delete_logged_model(model.model_id)
        self.client.delete_run(run.info.run_id)

    def log_points(
        self, run: Run, points: Points, *, model: str | None = None, dataset: Dataset = NO_DATASET, exact: bool = False
    ) -> None:
        """Log the points that the run lacks. Raises OutdatedRun if it has other values, or, if `exact`, other steps.

        `model` and `dataset` are what the metrics are of.
        """
        name, digest = dataset
        now, logged_metrics, missing = milliseconds(), self.logged_metrics(run), list[Metric]()
        for key, values in points.items():
            history = self.client.get_metric_history(run.info.run_id, key) if key in logged_metrics else []
            logged = {point.step: point.value for point in history}
            common = values.keys() & logged
            if not all(math.isclose(logged[step], values[step], rel_tol=1e-9) for step in common):
                raise OutdatedRun
            if exact and logged.keys() - values:
                raise OutdatedRun
            steps = [step for step in values if step not in logged]
            missing += [Metric(key, values[step], now, step, model, name, digest) for step in steps]
        self.log_metrics(run, missing)

    def log_timings(self, run: Run, seconds: dict[str, float]) -> None:
        """Log timings that the run lacks. Repeated work takes another time, so existing ones are not compared."""
        now, logged = milliseconds(), self.logged_metrics(run)
        self.log_metrics(run, [Metric(key, value, now, 0) for key, value in seconds.items() if key not in logged])

    def logged_metrics(self, run: Run) -> dict[str, float]:
        """The last value of each metric, in one request; a history takes one request per metric."""
        metrics: dict[str, float] = self.client.get_run(run.info.run_id).data.metrics
        return metrics

    def log_metrics(self, run: Run, metrics: list[Metric]) -> None:
        finite = [metric for metric in metrics if math.isfinite(metric.value)]
        for start in range(0, len(finite), REQUEST_LIMIT):
            self.client.log_batch(run.info.run_id, metrics=finite[start : start + REQUEST_LIMIT])

    def set_status(self, run: Run, status: str, end: int | None = None) -> None:
        """`end`, in milliseconds, is when the work ended: by default now, unless the run has this status already."""
        if run.info.status == status and end in (None, run.info.end_time):
            return
        if status == "RUNNING":
            self.client.update_run(run.info.run_id, status)
        else:
            self.client.set_terminated(run.info.run_id, status, end)


def milliseconds() -> int:
    return int(time.time() * 1000)


@contextmanager
def mlflow_errors() -> Iterator[None]:
    """Turn errors of MLflow, its database and the network into one sentence."""
    try:
        yield
    except Exception as error:
        of_database = type(error).__module__.startswith("sqlalchemy.")
        if of_database or isinstance(error, MlflowException | OSError | ImportError):
            raise unreachable(root_cause(error)) from error
        raise


def root_cause(error: BaseException) -> str:
    """The innermost reason, on one short line: MLflow wraps a refused connection in five exceptions."""
    while inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = inner
    reason = " ".join(str(error).split()) or type(error).__name__
    return reason if len(reason) <= 120 else reason[:119] + "…"
