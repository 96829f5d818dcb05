"""What MLflow shows, for comparison, and dvc.lock entries as DVC writes them."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from codline.data import tables
from codline.runtime import state_directory
from codline.runtime.pipeline import dotted_value
from codline.tracking.address import tracking_uri
from codline.tracking.lock_status import LockStatus
from tests.workspace import REPOSITORY, Workspace

CAMPAIGN = "digits · cod · seed 0"
FIRST_START = 1_700_000_000.0  # of the campaign's first stage, in seconds since 1970
TRACKING_ON = {"PYTHONPATH": str(REPOSITORY), "CODLINE_TRACKING": "on"}


def client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri())


def sync_cycles(workspace: Workspace, *cycles: str) -> list[str]:
    """Log these cycles, or all, as `codline track` does."""
    from codline.tracking.store import MlflowStore
    from codline.tracking.sync import sync

    names = list(cycles) or workspace.pipeline.cycles
    return list(sync(MlflowStore(), workspace.pipeline, names, LockStatus(workspace.pipeline)))


def runs() -> dict[str, Any]:
    """Runs of cycles by cycle, of campaigns by name. Names are unique."""
    experiment = client().get_experiment_by_name("codline")
    found = client().search_runs([experiment.experiment_id]) if experiment else []
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.data.tags.get("codline.cycle", run.info.run_name): run for run in found}


def run_ids() -> dict[str, str]:
    return {name: run.info.run_id for name, run in runs().items()}


def statuses() -> dict[str, str]:
    return {name: run.info.status for name, run in runs().items()}


def accuracies() -> dict[str, float | None]:
    return {name: run.data.metrics.get("accuracy") for name, run in runs().items()}


def span(name: str) -> tuple[float, float]:
    """Start and end of a run, in seconds since 1970."""
    info = runs()[name].info
    return info.start_time / 1000, info.end_time / 1000


def points(run: Any) -> dict[str, list[tuple[int, float]]]:
    histories = {key: client().get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: sorted((point.step, point.value) for point in history) for key, history in histories.items()}


def epochs(cycle: str) -> list[int]:
    """The epochs that are logged."""
    run = runs().get(cycle)
    return [] if run is None else [step for step, _ in points(run).get("train/task_loss", [])]


def snapshot() -> dict[str, Any]:
    """Everything that a user sees in MLflow, without ids and times."""
    view: dict[str, Any] = {name: run_content(run) for name, run in runs().items()}
    versions = client().search_model_versions("name = 'codline-digits'")
    view["versions"] = sorted((version.tags["codline.cycle"], version.tags["accuracy"]) for version in versions)
    cycles = {version.version: version.tags["codline.cycle"] for version in versions}
    aliases = client().get_registered_model("codline-digits").aliases if versions else {}
    view["aliases"] = {alias: cycles[int(version)] for alias, version in aliases.items()}
    models = client().search_logged_models([client().get_experiment_by_name("codline").experiment_id])
    view["models"] = sorted((model.name, str(model.status), model.metrics is not None) for model in models)
    return view


def run_content(run: Any) -> tuple[Any, ...]:
    datasets = [dataset_input.dataset for dataset_input in run.inputs.dataset_inputs]
    return (
        run.info.status,
        run.data.params,
        {key: value for key, value in run.data.tags.items() if key.startswith("codline.")},
        points(run),
        sorted(file.path for file in client().list_artifacts(run.info.run_id)),
        sorted((dataset.name, dataset.digest, dataset.source) for dataset in datasets),
        len(run.outputs.model_outputs if run.outputs else []),
    )


def write_progress(cycle: str, rows: list[dict[str, Any]]) -> None:
    """The note of a running training."""
    note = {"unit": "epoch", "done": len(rows), "total": 3, "started": FIRST_START - 100, "curve": rows}
    state_directory.write_note("progress", f"train@{cycle}", note)


def training_rows(workspace: Workspace, cycle: str) -> list[dict[str, Any]]:
    table = tables.read_csv(workspace.path("train", "training_curve", cycle), tables.TRAINING)
    return list(table.to_pylist())


def lock_entry(workspace: Workspace, name: str, **params: Any) -> dict[str, Any]:
    """The entry that DVC would write for a stage that has just run; `params` replace those of params.yaml."""
    stage, _, cycle = name.partition("@")
    pipeline, definition = workspace.pipeline, workspace.pipeline.stages[stage]
    outputs = {path.relative_to(workspace.root).as_posix() for path in workspace.outputs(stage, cycle)}
    files = {path for path in pipeline.arguments(stage, cycle or None).values() if (workspace.root / path).is_file()}
    hashes = {path: hashlib.md5((workspace.root / path).read_bytes()).hexdigest() for path in files | outputs}
    values = {key: dotted_value(pipeline.params, key) for key in definition.get("do", definition)["params"]}
    return {
        "deps": [{"path": path, "md5": hashes[path]} for path in sorted(files - outputs)],
        "params": {"params.yaml": values | params},
        "outs": [{"path": path, "md5": hashes[path]} for path in sorted(outputs)],
    }


def lock_entries(workspace: Workspace, **params: Any) -> dict[str, Any]:
    """Entries of all stages but report, which has not run."""
    names = [name for name in workspace.pipeline.stage_names() if name != "report"]
    return {name: lock_entry(workspace, name, **params) for name in names}


def write_lock(workspace: Workspace, stages: dict[str, Any]) -> None:
    (workspace.root / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
