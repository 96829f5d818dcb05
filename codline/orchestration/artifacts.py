"""Prefect artifacts of a flow run: the learning curve, the images of each query, a link to MLflow."""

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from prefect import get_run_logger
from prefect.artifacts import create_image_artifact, create_link_artifact, create_table_artifact

from codline.core.primary_metric import primary_metric
from codline.orchestration.learning_curve import evaluated_metrics
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline

MLFLOW = "http://127.0.0.1:5017"  # the address at which `codline ui` serves MLflow


def publish_learning_curve() -> None:
    with warn_on_error():
        rows, name = [], "accuracy"
        for cycle, metrics in evaluated_metrics(Pipeline()).items():
            name, value = primary_metric(metrics)
            row = {"cycle": cycle, "labels": metrics["labels"], name: f"{value:.2%}", "loss": f"{metrics['loss']:.4f}"}
            rows.append(row)
        create_table_artifact(rows, key="learning-curve", description=f"Test {name} against labels")


def publish_query_images(cycle: str) -> None:
    with warn_on_error():
        picture = state_directory.state_root() / "gallery" / f"{cycle}.png"
        command = [sys.executable, "-m", "codline.report.contact_sheet", cycle, str(picture)]
        subprocess.run(command, check=True, capture_output=True)
        data = base64.b64encode(picture.read_bytes()).decode()
        description = f"The query of {cycle}, highest score first"
        create_image_artifact(f"data:image/png;base64,{data}", key=f"query-{cycle}", description=description)


def publish_mlflow_link(cycle: str) -> None:
    """Link to the cycle's run in MLflow, if it has one."""
    note = state_directory.read_note("runs", cycle)
    if note is None:
        return
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    base = store if store.startswith("http") else MLFLOW
    address = f"{base}/#/experiments/{note['experiment']}/runs/{note['run']}"
    with warn_on_error():
        description = f"{cycle} in MLflow (codline ui)"
        create_link_artifact(address, "MLflow run", key=f"mlflow-{cycle}", description=description)


@contextlib.contextmanager
def warn_on_error() -> Iterator[None]:
    """Turn any error into a warning: a missing artifact must not fail the campaign."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("an artifact of this run could not be created: %s", error)
