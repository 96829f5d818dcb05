"""What a run shows on its Prefect page: the curve as a table, the query as pictures, the way to MLflow."""

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_image_artifact, create_link_artifact, create_table_artifact

from codline.core.files import read_json
from codline.core.primary_metric import headline
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline

MLFLOW = "http://127.0.0.1:5017"  # where `codline ui` shows it


def finished(pipeline: Pipeline) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cycles that have been evaluated, with their metrics."""
    for cycle in pipeline.cycles:
        path = pipeline.path("evaluate", "metrics", cycle)
        if path.exists():
            yield cycle, read_json(path)


def curve() -> None:
    with harmless():
        named = [(cycle, metrics, *headline(metrics)) for cycle, metrics in finished(Pipeline())]
        rows = [
            {"cycle": cycle, "labels": m["labels"], word: f"{value:.2%}", "loss": f"{m['loss']:.4f}"}
            for cycle, m, word, value in named
        ]
        create_table_artifact(
            rows, key="learning-curve", description=f"Test {named[-1][2] if named else 'accuracy'} against labels"
        )


def query(cycle: str) -> None:
    with harmless():
        picture = state_directory.root() / "gallery" / f"{cycle}.png"
        subprocess.run(
            [sys.executable, "-m", "codline.report.contact_sheet", cycle, str(picture)], check=True, capture_output=True
        )
        data = base64.b64encode(picture.read_bytes()).decode()
        create_image_artifact(
            f"data:image/png;base64,{data}",
            key=f"query-{cycle}",
            description=f"The query of {cycle}, most wanted first",
        )


def link(cycle: str) -> None:
    """To the cycle's run in MLflow, if it has one."""
    note = state_directory.read_note("runs", cycle)
    if note is None:
        return
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    base = store if store.startswith("http") else MLFLOW
    with harmless():
        address = f"{base}/#/experiments/{note['experiment']}/runs/{note['run']}"
        create_link_artifact(
            address, "MLflow run", key=f"mlflow-{cycle}", description=f"{cycle} in MLflow (codline ui)"
        )


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """A page that cannot be drawn is worth a warning, never a failed campaign."""
    try:
        yield
    except Exception as error:
        get_run_logger().warning("a page of the run could not be drawn: %s", error)
