"""The models in MLflow: one per cycle, logged with its run and registered once; aliases mark the best and the last."""

from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import numpy as np
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import Schema, TensorSpec

import codline
from codline.core.files import read_json
from codline.core.primary_metric import primary_key, selection_value
from codline.data.dataset_info import DatasetInfo
from codline.tracking.campaign import TrackedCampaign
from codline.tracking.store import CAMPAIGN, CYCLE, MlflowStore

REQUIREMENTS = ("mlflow", "numpy", "pyarrow", "pydantic", "ruamel.yaml", "safetensors", "torch", "torchvision")
PACKAGE = Path(codline.__file__).parent
DESCRIPTION = (
    "One version per evaluated cycle, with its test metric and its number of labels in tags. "
    "Alias `best`: highest accuracy on the validation images (segmentation: mean IoU) of all campaigns that have any, "
    "with fewest labels on a tie; if none has, the last cycle of the campaign that was logged last. "
    "Alias `last`: the last cycle of that campaign."
)
SELECTION = "validation"  # tag of a version: its primary metric on the validation images, if there are any


def log_model(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> str:
    """Log the cycle's model unless the run has it; returns its id."""
    model = complete_model(store, campaign, cycle, run) or upload_model(store, campaign, cycle, run)
    outputs = store.client.get_run(run.info.run_id).outputs
    if model.model_id not in {output.model_id for output in (outputs.model_outputs if outputs else [])}:
        store.client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])
    return str(model.model_id)


def complete_model(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> LoggedModel | None:
    """The model that the run has, if any. Others of the cycle, which a kill has left incomplete, are deleted."""
    query = f"tags.`{CAMPAIGN}` = '{campaign.key}' AND tags.`{CYCLE}` = '{cycle}'"
    complete = None
    for model in store.client.search_logged_models([store.experiment], query):
        is_ready = model.source_run_id == run.info.run_id and model.status == LoggedModelStatus.READY
        if is_ready and complete is None:
            complete = model
        else:
            store.client.delete_logged_model(model.model_id)
    return complete


def upload_model(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run) -> LoggedModel:
    name, tags = f"{campaign.dataset}-{cycle}", {CAMPAIGN: campaign.key, CYCLE: cycle}
    model = store.client.create_logged_model(store.experiment, name, run.info.run_id, tags)
    with TemporaryDirectory() as directory:
        path = Path(directory, "model")
        save_model(path, campaign, cycle, model)
        store.client.log_model_artifacts(model.model_id, str(path))
    store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return model


def save_model(path: Path, campaign: TrackedCampaign, cycle: str, model: LoggedModel) -> None:
    """Requirements and signature are given: to infer them, MLflow would load the model in another process."""
    files = {name: str(campaign.pipeline.path("evaluate", name, cycle)) for name in ("model", "dataset")}
    mlflow.pyfunc.save_model(
        path,
        python_model=str(PACKAGE / "tracking/served_model.py"),
        artifacts=files,
        code_paths=[str(PACKAGE)],
        pip_requirements=[f"{name}=={metadata.version(name).partition('+')[0]}" for name in REQUIREMENTS],
        signature=model_signature(campaign.dataset_info()),
        mlflow_model=Model(
            artifact_path=model.artifact_location,
            run_id=model.source_run_id,
            model_uuid=model.model_id,
            model_id=model.model_id,
        ),
    )


def model_signature(dataset: DatasetInfo) -> ModelSignature:
    pixels = dataset.shape[1:] if dataset.task == "segmentation" else ()
    images = TensorSpec(np.dtype(np.uint8), (-1, *dataset.shape))
    probabilities = TensorSpec(np.dtype(np.float64), (-1, len(dataset.classes), *pixels))
    return ModelSignature(Schema([images]), Schema([probabilities]))


def register_model(store: MlflowStore, campaign: TrackedCampaign, cycle: str, run: Run, model_id: str) -> None:
    name, metrics = f"codline-{campaign.dataset}", read_json(campaign.pipeline.path("evaluate", "metrics", cycle))
    identity = {CAMPAIGN: campaign.key, CYCLE: cycle}
    key, selection = primary_key(metrics), selection_value(metrics)
    results = {key: repr(metrics[key]), "labels": str(metrics["labels"])}
    results |= {} if selection is None else {SELECTION: repr(selection)}
    versions = model_versions(store, name)
    for version in [version for version in versions if version.tags.items() >= identity.items()]:
        if is_run_deleted(store, version.run_id or ""):
            store.client.delete_model_version(name, version.version)
            versions.remove(version)
    if run.info.run_id not in {version.run_id for version in versions}:
        source, tags = f"models:/{model_id}", identity | results
        created = store.client.create_model_version(name, source, run.info.run_id, tags, model_id=model_id)
        versions.append(created)
    set_aliases(store, campaign, name, versions)


def is_run_deleted(store: MlflowStore, run_id: str) -> bool:
    try:
        return bool(store.client.get_run(run_id).info.lifecycle_stage != "active")
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return True
        raise


def model_versions(store: MlflowStore, name: str) -> list[ModelVersion]:
    """The versions of a registered model, which is created if missing."""
    try:
        store.client.create_registered_model(name, description=DESCRIPTION)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return sorted(store.client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version))


def set_aliases(store: MlflowStore, campaign: TrackedCampaign, name: str, versions: list[ModelVersion]) -> None:
    """`best` is chosen among all campaigns on this dataset that have validation images, in whatever order they came.

    The test metric never chooses: without validation images `best` is `last`, the last cycle of this campaign.
    (MLflow reserves the alias `latest`.)
    """
    cycles = {version.tags[CYCLE]: version for version in versions if version.tags.get(CAMPAIGN) == campaign.key}
    last = cycles[[cycle for cycle in campaign.pipeline.cycles if cycle in cycles][-1]]
    validated = [version for version in versions if SELECTION in version.tags]
    best = max(validated, key=selection_order, default=last)
    model = store.client.get_registered_model(name)
    if model.description != DESCRIPTION:  # of an earlier release
        store.client.update_registered_model(name, DESCRIPTION)
    for alias, version in (("best", best), ("last", last)):
        if str(model.aliases.get(alias)) != str(version.version):
            store.client.set_registered_model_alias(name, alias, version.version)


def selection_order(version: ModelVersion) -> tuple[float, int]:
    """By validation metric, then fewest labels."""
    return float(version.tags[SELECTION]), -int(version.tags["labels"])
