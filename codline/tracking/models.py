"""The model of each cycle in MLflow: logged with its run, registered once, the best and the latest under an alias."""

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
from codline.core.primary_metric import headline
from codline.data.dataset_info import Dataset
from codline.tracking.campaign import Campaign
from codline.tracking.store import CAMPAIGN, CYCLE, Store

NEEDED = ("mlflow", "numpy", "pyarrow", "pydantic", "ruamel.yaml", "safetensors", "torch", "torchvision")
ROOM = Path(codline.__file__).parent


def log_model(store: Store, campaign: Campaign, cycle: str, run: Run) -> str:
    """The id of the run's model; what a kill left half-done is dropped first."""
    tags = {CAMPAIGN: campaign.key, CYCLE: cycle}
    kept: LoggedModel | None = None
    for model in store.client.search_logged_models(
        [store.experiment], f"tags.`{CAMPAIGN}` = '{campaign.key}' AND tags.`{CYCLE}` = '{cycle}'"
    ):
        if kept is None and model.source_run_id == run.info.run_id and model.status == LoggedModelStatus.READY:
            kept = model
        else:
            store.client.delete_logged_model(model.model_id)
    if kept is None:
        kept = store.client.create_logged_model(store.experiment, f"{campaign.dataset}-{cycle}", run.info.run_id, tags)
        with TemporaryDirectory() as folder:
            save(Path(folder, "model"), campaign, cycle, kept)
            store.client.log_model_artifacts(kept.model_id, str(Path(folder, "model")))
        store.client.finalize_logged_model(kept.model_id, LoggedModelStatus.READY)
    outputs = store.client.get_run(run.info.run_id).outputs
    if kept.model_id not in {output.model_id for output in (outputs.model_outputs if outputs else [])}:
        store.client.log_outputs(run.info.run_id, [LoggedModelOutput(kept.model_id, step=0)])
    model_id: str = kept.model_id
    return model_id


def save(path: Path, campaign: Campaign, cycle: str, model: LoggedModel) -> None:
    """Requirements and signature are spelled out: to find them by itself, MLflow would load the model in another process."""
    pipeline = campaign.pipeline
    mlflow.pyfunc.save_model(
        path,
        python_model=str(ROOM / "tracking/served_model.py"),
        artifacts={
            "model": str(pipeline.path("evaluate", "model", cycle)),
            "dataset": str(pipeline.path("evaluate", "dataset", cycle)),
        },
        code_paths=[str(ROOM)],
        pip_requirements=[f"{name}=={metadata.version(name).partition('+')[0]}" for name in NEEDED],
        signature=signature(campaign.facts()),
        mlflow_model=Model(
            artifact_path=model.artifact_location,
            run_id=model.source_run_id,
            model_uuid=model.model_id,
            model_id=model.model_id,
        ),
    )


def signature(facts: Dataset) -> ModelSignature:
    images = TensorSpec(np.dtype(np.uint8), (-1, *facts.shape))
    probs = TensorSpec(
        np.dtype(np.float64), (-1, len(facts.classes), *(facts.shape[1:] if facts.task == "segmentation" else ()))
    )
    return ModelSignature(Schema([images]), Schema([probs]))


def register(store: Store, campaign: Campaign, cycle: str, run: Run, model_id: str) -> None:
    name, metrics = f"codline-{campaign.dataset}", read_json(campaign.pipeline.path("evaluate", "metrics", cycle))
    same = {CAMPAIGN: campaign.key, CYCLE: cycle}
    tags = same | {
        "accuracy": repr(metrics["accuracy"]),
        "measure": repr(headline(metrics)[1]),
        "labels": str(metrics["labels"]),
    }
    versions = known_versions(store, name)
    for known in [known for known in versions if known.tags.items() >= same.items()]:
        if orphaned(store, known):
            store.client.delete_model_version(name, known.version)
            versions.remove(known)
    if run.info.run_id not in {known.run_id for known in versions}:
        versions.append(
            store.client.create_model_version(name, f"models:/{model_id}", run.info.run_id, tags, model_id=model_id)
        )
    name_best(store, campaign, name, versions)


def orphaned(store: Store, known: ModelVersion) -> bool:
    """Has somebody deleted its run?"""
    try:
        return bool(store.client.get_run(known.run_id or "").info.lifecycle_stage != "active")
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return True
        raise


def known_versions(store: Store, name: str) -> list[ModelVersion]:
    try:
        store.client.create_registered_model(
            name,
            description="One version per evaluated cycle. best: highest test accuracy (of segmentation, mean IoU), of fewest labels on a tie.",
        )
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return sorted(store.client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version))


def name_best(store: Store, campaign: Campaign, name: str, versions: list[ModelVersion]) -> None:
    """`best` is the best of every campaign on this dataset, so that it does not depend on the order of logging; `last` is this campaign's last cycle.

    MLflow keeps the word `latest` for itself.
    """
    ours = [version for version in versions if "measure" in version.tags]
    best = max(ours, key=lambda version: (float(version.tags["measure"]), -int(version.tags["labels"])))
    here = {version.tags[CYCLE]: version for version in ours if version.tags[CAMPAIGN] == campaign.key}
    last = here[[cycle for cycle in campaign.pipeline.cycles if cycle in here][-1]]
    aliases = store.client.get_registered_model(name).aliases
    for alias, version in (("best", best), ("last", last)):
        if str(aliases.get(alias)) != str(version.version):
            store.client.set_registered_model_alias(name, alias, version.version)
