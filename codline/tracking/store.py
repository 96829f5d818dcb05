"""Runs and points in MLflow, each put there once."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException

from codline.tracking.address import address, unanswered

Points = dict[str, dict[int, float]]  # {metric: {step: value}}
CAMPAIGN, CYCLE, PART = "codline.campaign", "codline.cycle", "codline.part."
WHOLE = ""  # the campaign's own place among the runs of its cycles
MOST = 1000  # points or runs in one request


class Changed(Exception):  # noqa: N818 (no error: the files moved on)
    """A run holds something else than the files say now."""


class Store:
    def __init__(self) -> None:
        mlflow.set_tracking_uri(address())
        self.client = MlflowClient()
        self.experiment = self.opened(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "codline")

    def opened(self, name: str) -> str:
        """The experiment's id. A database has no place for files: they go beside it, while a server has its own."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            beside = "mlartifacts" if address().startswith("sqlite:") else None
            return self.client.create_experiment(
                name, beside, {"mlflow.experimentKind": "custom_model_development"}
            )  # the page for training, not for chats
        experiment: str = found.experiment_id
        return experiment

    def runs(self, campaign: str) -> dict[str, Run]:
        """{cycle: its run}, and the campaign's own under WHOLE. Of doubles, which only machines without a common lock can make, the oldest stays."""
        found: dict[str, Run] = {}
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        for run in self.client.search_runs(
            [self.experiment], f"tags.`{CAMPAIGN}` = '{campaign}'", max_results=MOST, order_by=order
        ):
            cycle = run.data.tags.get(CYCLE, WHOLE)
            if cycle in found:
                self.discard(run)
            else:
                found[cycle] = run
        return found

    def with_params(self, run: Run, params: dict[str, str]) -> Run:
        """A kill may have come between a run and its parameters."""
        if missing := [Param(key, value) for key, value in params.items() if key not in run.data.params]:
            self.client.log_batch(run.info.run_id, params=missing)
        return run

    def discard(self, run: Run) -> None:
        """Delete a run with its models: the run last, so that a kill in between leaves it to be discarded again."""
        for version in self.client.search_model_versions(f"run_id = '{run.info.run_id}'"):
            self.client.delete_model_version(version.name, version.version)
        for model in self.client.search_logged_models([self.experiment], f"source_run_id = '{run.info.run_id}'"):
            self.client.delete_logged_model(model.model_id)
        self.client.delete_run(run.info.run_id)

    def add(self, run: Run, points: Points, *, model: str | None = None, exact: bool = False) -> None:
        """Log the points that are not there yet. `exact`: there may be no others."""
        now, known, fresh = milliseconds(), self.known(run), list[Metric]()
        for key, wanted in points.items():
            there = (
                {point.step: point.value for point in self.client.get_metric_history(run.info.run_id, key)}
                if key in known
                else {}
            )
            if any(
                not math.isclose(there[step], value, rel_tol=1e-9) for step, value in wanted.items() if step in there
            ) or (exact and there.keys() - wanted):
                raise Changed
            fresh += [
                Metric(key, value, now, step, model_id=model) for step, value in wanted.items() if step not in there
            ]
        self.log(run, fresh)

    def add_once(self, run: Run, values: dict[str, float]) -> None:
        """Timings: another run of the same work takes another time, and the first one stands."""
        now, known = milliseconds(), self.known(run)
        self.log(run, [Metric(key, value, now, 0) for key, value in values.items() if key not in known])

    def known(self, run: Run) -> dict[str, float]:
        """The last value of each metric: one request, where a history takes one for each."""
        metrics: dict[str, float] = self.client.get_run(run.info.run_id).data.metrics
        return metrics

    def log(self, run: Run, metrics: list[Metric]) -> None:
        finite = [metric for metric in metrics if math.isfinite(metric.value)]
        for start in range(0, len(finite), MOST):
            self.client.log_batch(run.info.run_id, metrics=finite[start : start + MOST])

    def settle(self, run: Run, status: str) -> None:
        if run.info.status == status:
            return
        if status == "RUNNING":
            self.client.update_run(run.info.run_id, status)
        else:
            self.client.set_terminated(run.info.run_id, status)


def milliseconds() -> int:
    return int(time.time() * 1000)


@contextmanager
def answering() -> Iterator[None]:
    """Whatever goes wrong between us and MLflow becomes one sentence."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MlflowException | OSError | ImportError) or type(error).__module__.startswith(
            "sqlalchemy."
        ):
            raise unanswered(cause(error)) from error
        raise


def cause(error: BaseException) -> str:
    """Its innermost reason, on one short line: MLflow wraps a refused connection five deep."""
    while inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = inner
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 120 else words[:119] + "…"
