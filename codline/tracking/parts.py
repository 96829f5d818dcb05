"""How each part of a cycle gets into its run."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities import Dataset, DatasetInput, InputTag, Run

from codline.core.files import digest
from codline.data import tables
from codline.tracking import models
from codline.tracking.campaign import Campaign
from codline.tracking.store import Store

COLUMNS = {"int64": "long", "int32": "integer", "string": "string"}  # as MLflow calls them
ROLES = {"pool": (tables.POOL, "pool"), "labeled": (tables.LABELED, "training"), "test": (tables.TEST, "testing")}
Log = Callable[[Store, Campaign, str, Run], None]


def training(store: Store, campaign: Campaign, cycle: str, run: Run) -> None:
    add_inputs(
        store,
        campaign,
        run,
        pool=campaign.pipeline.path("train", "pool", cycle),
        labeled=campaign.pipeline.path("train", "labeled", cycle),
    )
    store.add(run, campaign.curve(cycle))
    store.add_once(run, campaign.seconds("train", cycle))


def add_inputs(store: Store, campaign: Campaign, run: Run, **paths: Path) -> None:
    """Which images there were, and which of them had labels: names and hashes, not copies."""
    store.client.log_inputs(run.info.run_id, [table_input(campaign, role, path) for role, path in paths.items()])


def table_input(campaign: Campaign, role: str, path: Path) -> DatasetInput:
    schema, context = ROLES[role]
    dataset = Dataset(
        name=f"{campaign.dataset} {role}",
        digest=digest(path)[:32],
        source_type="local",
        source=json.dumps({"uri": path.relative_to(campaign.pipeline.root).as_posix()}),
        schema=json.dumps(
            {
                "mlflow_colspec": [
                    {"name": field.name, "type": COLUMNS[str(field.type)], "required": True} for field in schema
                ]
            }
        ),
        profile=json.dumps({"num_rows": tables.read(path, schema).num_rows}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", context)])


def metrics(store: Store, campaign: Campaign, cycle: str, run: Run) -> None:
    add_inputs(store, campaign, run, test=campaign.pipeline.path("evaluate", "test", cycle))
    model = models.log_model(store, campaign, cycle, run)
    store.add(run, campaign.metrics(cycle), model=model)
    store.add_once(run, campaign.seconds("evaluate", cycle))
    models.register(store, campaign, cycle, run, model)


def confusion(store: Store, campaign: Campaign, cycle: str, run: Run) -> None:
    from codline.report import charts, page  # matplotlib

    classes, metrics = (
        campaign.facts().classes,
        page.opened(campaign.pipeline.path("evaluate", "metrics", cycle), page.Metrics),
    )
    counts = page.counts(metrics, campaign.pipeline.path("evaluate", "predictions", cycle), classes)
    store.client.log_dict(
        run.info.run_id, {"classes": classes, "rows are actual, columns predicted": counts.tolist()}, "confusion.json"
    )
    attach(store, run, "confusion.png", charts.png(charts.confusion(counts, classes)))


def query(store: Store, campaign: Campaign, cycle: str, run: Run) -> None:
    from codline.report import contact_sheet

    attach(store, run, "query.png", contact_sheet.sheet(campaign.pipeline, cycle))
    store.add_once(run, campaign.acquisition(cycle))


def diagnostics(store: Store, campaign: Campaign, cycle: str, run: Run) -> None:
    store.add(run, campaign.diagnostics(cycle))
    store.client.log_artifact(run.info.run_id, str(campaign.pipeline.path("diagnose", "diagnostics", cycle)))


def attach(store: Store, run: Run, name: str, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        store.client.log_artifact(run.info.run_id, str(path))


LOG: dict[str, Log] = {
    "training": training,
    "metrics": metrics,
    "confusion": confusion,
    "query": query,
    "diagnostics": diagnostics,
}
