"""Logs the parts of a cycle (campaign.Part) to its run."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities import Dataset, DatasetInput, InputTag, Run

from codline.core.files import file_sha256
from codline.data import tables
from codline.tracking import models
from codline.tracking.campaign import TrackedCampaign
from codline.tracking.store import MlflowStore

MLFLOW_TYPES = {"int64": "long", "int32": "integer", "string": "string"}  # by Arrow type
# {argument of a stage: (its schema, MLflow's word for what the table is used for)}
TABLES = {
    "pool": (tables.POOL, "pool"),
    "labeled": (tables.LABELED, "training"),
    "validation": (tables.VALIDATION, "validation"),
    "test": (tables.TEST, "testing"),
}
PartLogger = Callable[[MlflowStore, TrackedCampaign, str, Run], None]


def log_training(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> None:
    files = {name: campaign.pipeline.path("train", name, cycle) for name in ("pool", "labeled")}
    log_inputs(store, campaign, run, files)
    store.log_points(run, campaign.training_curve(cycle))
    store.log_timings(run, campaign.stage_seconds("train", cycle))


def log_inputs(store: MlflowStore, campaign: TrackedCampaign, run: Run, files: dict[str, Path]) -> None:
    """Log which tables the run used: names and hashes, not copies."""
    inputs = [dataset_input(campaign, name, path) for name, path in files.items() if row_count(name, path)]
    store.client.log_inputs(run.info.run_id, inputs)


def row_count(name: str, path: Path) -> int:
    """0 if the file is missing, or the campaign has no such images."""
    return tables.read_table(path, TABLES[name][0]).num_rows if path.exists() else 0


def dataset_input(campaign: TrackedCampaign, name: str, path: Path) -> DatasetInput:
    schema, context = TABLES[name]
    columns = [{"name": field.name, "type": MLFLOW_TYPES[str(field.type)], "required": True} for field in schema]
    dataset = Dataset(
        name=dataset_name(campaign, name),
        digest=dataset_digest(path),
        source_type="local",
        source=json.dumps({"uri": path.relative_to(campaign.pipeline.root).as_posix()}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps({"num_rows": row_count(name, path)}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", context)])


def dataset_name(campaign: TrackedCampaign, table: str) -> str:
    return f"{campaign.dataset} {table}"


def dataset_digest(path: Path) -> str:
    return file_sha256(path)[:32]


def log_evaluation(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> None:
    files = {name: campaign.pipeline.path("evaluate", name, cycle) for name in ("validation", "test")}
    log_inputs(store, campaign, run, files)
    model = models.log_model(store, campaign, cycle, run)
    for split, points in campaign.metrics(cycle).items():
        dataset = (dataset_name(campaign, split), dataset_digest(files[split]))
        store.log_points(run, points, model=model, dataset=dataset)
    store.log_timings(run, campaign.stage_seconds("evaluate", cycle))
    models.register_model(store, campaign, cycle, run, model)


def log_confusion(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> None:
    from codline.report import chart_layout, charts, results  # imports matplotlib: seconds

    classes, path = campaign.dataset_info().classes, campaign.pipeline.path
    details = results.read_result(path("evaluate", "details", cycle), results.Details)
    counts = results.confusion_counts(details, path("evaluate", "predictions", cycle), classes)
    content = {"classes": classes, "rows are actual, columns predicted": counts.tolist()}
    store.client.log_dict(run.info.run_id, content, "confusion.json")
    log_file(store, run, "confusion.png", chart_layout.to_png(charts.confusion_matrix(counts, classes)))


def log_query(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> None:
    from codline.report import contact_sheet

    log_file(store, run, "query.png", contact_sheet.render_contact_sheet(campaign.pipeline, cycle))
    store.log_timings(run, campaign.acquisition_seconds(cycle))


def log_diagnostics(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> None:
    store.log_points(run, campaign.diagnostics(cycle))
    store.client.log_artifact(run.info.run_id, str(campaign.pipeline.path("diagnose", "diagnostics", cycle)))


def log_file(store: MlflowStore, run: Run, name: str, content: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_bytes(content)
        store.client.log_artifact(run.info.run_id, str(path))


LOGGERS: dict[str, PartLogger] = {
    "training": log_training,
    "metrics": log_evaluation,
    "confusion": log_confusion,
    "query": log_query,
    "diagnostics": log_diagnostics,
}
