"""Prefect artifacts of a flow run: the learning curve, the images of each query, a link to MLflow."""

import base64
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)

from codline.core.primary_metric import primary_metric
from codline.orchestration.dvc_lock import LOCK
from codline.orchestration.learning_curve import evaluated_metrics
from codline.runtime import state_directory
from codline.runtime.campaign_identity import current_campaign
from codline.runtime.pipeline import Pipeline

LOCK_KEY = "dvc-lock"  # how the key of the artifact ends
FENCE = "```yaml\n", "```\n"
MLFLOW = "http://127.0.0.1:5017"  # the address at which `codline ui` serves MLflow


def artifact_key(name: str) -> str:
    """A key of this campaign alone: under the same key Prefect shows artifacts as one history."""
    return f"{current_campaign().slug}-{re.sub('[^a-z0-9]+', '-', name.lower())}"  # Prefect accepts nothing else


def publish_learning_curve(last: str) -> None:
    """Publish the cycles up to this one: later ones may have files of other parameters."""
    with warn_on_error():
        pipeline = Pipeline()
        cycles = pipeline.cycles[: pipeline.cycles.index(last) + 1]
        rows, name = [], "accuracy"
        for cycle, metrics in evaluated_metrics(pipeline, cycles).items():
            metric, loss = primary_metric(metrics), f"{metrics['loss']:.4f}"
            name = metric.name
            rows.append({"cycle": cycle, "labels": metrics["labels"], name: str(metric), "loss": loss})
        description = f"{current_campaign().title}: test {name} with its 95% interval, against labels"
        create_table_artifact(rows, key=artifact_key("learning-curve"), description=description)


def publish_query_images(cycle: str) -> None:
    with warn_on_error():
        picture = state_directory.state_root() / "gallery" / f"{cycle}.png"
        command = [sys.executable, "-m", "codline.report.contact_sheet", cycle, str(picture)]
        subprocess.run(command, check=True, capture_output=True)
        data = base64.b64encode(picture.read_bytes()).decode()
        description = f"{current_campaign().title}: the query of {cycle}, highest score first"
        create_image_artifact(
            f"data:image/png;base64,{data}", key=artifact_key(f"query-{cycle}"), description=description
        )


def publish_mlflow_link(cycle: str) -> None:
    """Link to the cycle's run in MLflow, if it has one."""
    with warn_on_error():
        campaign, note = current_campaign(), state_directory.read_note("runs", cycle)
        if note is None or note.get("campaign") != campaign.key:
            return
        store = os.environ.get("MLFLOW_TRACKING_URI", "")
        base = store if store.startswith("http") else MLFLOW
        address = f"{base}/#/experiments/{note['experiment']}/runs/{note['run']}"
        description = f"{campaign.title}: {cycle} in MLflow (codline ui)"
        create_link_artifact(address, "MLflow run", key=artifact_key(f"mlflow-{cycle}"), description=description)


def publish_lock() -> None:
    """Publish dvc.lock: whoever has it gets all results from the DVC remote. A study on a work pool reads it."""
    start, end = FENCE
    text = f"{start}{LOCK.read_text(encoding='utf-8')}{end}"
    create_markdown_artifact(text, key=artifact_key(LOCK_KEY), description=f"{current_campaign().title}: dvc.lock")


@contextlib.contextmanager
def warn_on_error() -> Iterator[None]:
    """Turn any error into a warning: a missing artifact must not fail the campaign."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("an artifact of this run could not be created: %s", error)
