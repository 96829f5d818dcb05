"""Registered models load without the workspace and predict as the workspace's own files do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codline.core.files import read_json, write_json
from codline.data import dataset_info, image_store, output_store
from codline.learning import compute, inference, model_file
from tests.tracking.mlflow_view import CAMPAIGN, client, points, runs, snapshot, sync_cycles
from tests.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, at import
SCRIPT = """
import mlflow, numpy, torch
torch.set_num_threads(1)
model = mlflow.pyfunc.load_model("models:/codline-digits@best")
numpy.save("probabilities.npy", model.predict(numpy.load("images.npy")))
"""


def test_best_model_loads_in_any_directory_and_predicts_as_its_file_does(tracked: Workspace, tmp_path: Path) -> None:
    sync_cycles(tracked)
    images = image_store.open_image_store(tracked.path("prepare", "images"))
    np.save(tmp_path / "images.npy", images.take(images.ids))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= compute.INSTRUCTION_VARIABLES["avx2"]
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, check=True, capture_output=True)
    accuracies = validation_accuracies(tracked)
    expected = probabilities(tracked, max(accuracies, key=lambda cycle: accuracies[cycle]), images)
    np.testing.assert_array_equal(np.load(tmp_path / "probabilities.npy"), expected)


def validation_accuracies(workspace: Workspace) -> dict[str, float]:
    metrics = {cycle: workspace.path("evaluate", "metrics", cycle) for cycle in workspace.pipeline.cycles}
    return {cycle: read_json(path)["validation_accuracy"] for cycle, path in metrics.items()}


def probabilities(workspace: Workspace, cycle: str, images: Any) -> np.ndarray:
    dataset = dataset_info.read_dataset_info(workspace.path("prepare", "dataset"))
    path = workspace.path("train", "model", cycle)
    network, _ = model_file.load_network(path, classes=len(dataset.classes), shape=dataset.shape)
    normalize = inference.Normalize(dataset.mean, dataset.std, compute.select_device("cpu"))
    batches = inference.stream_logits(network, images.take, images.ids, normalize, 512)
    return output_store.softmax(np.concatenate([logits for _, logits in batches]))


def write_metrics(workspace: Workspace, cycle: str, **values: float | None) -> None:
    path = workspace.path("evaluate", "metrics", cycle)
    write_json(path, read_json(path) | values)


def test_best_model_is_chosen_by_validation_images_and_never_by_test_images(tracked: Workspace) -> None:
    write_metrics(tracked, "c1", accuracy=0.3, validation_accuracy=0.9)
    write_metrics(tracked, "c2", accuracy=0.6, validation_accuracy=0.9)
    write_metrics(tracked, "c3", accuracy=0.9, validation_accuracy=0.8)
    sync_cycles(tracked)
    assert snapshot()["aliases"] == {"best": "c1", "last": "c3"}, "of equal ones that with fewest labels"
    assert [value for _, value in points(runs()[CAMPAIGN])["best_accuracy"]] == [0.3, 0.3, 0.3]


def test_best_model_without_validation_images_is_the_last(tracked: Workspace) -> None:
    for cycle, accuracy in (("c1", 0.9), ("c2", 0.8), ("c3", 0.7)):
        write_metrics(tracked, cycle, accuracy=accuracy, validation_accuracy=None)
    sync_cycles(tracked)
    assert snapshot()["aliases"] == {"best": "c3", "last": "c3"}
    assert [value for _, value in points(runs()[CAMPAIGN])["best_accuracy"]] == [0.9, 0.8, 0.7]


def test_best_model_is_of_a_campaign_with_validation_images_if_there_is_one(tracked: Workspace) -> None:
    sync_cycles(tracked, "c1")
    best = client().get_model_version_by_alias("codline-digits", "best").run_id
    tracked.change(seed=1)
    write_metrics(tracked, "c1", validation_accuracy=None)
    sync_cycles(tracked, "c1")
    assert client().get_model_version_by_alias("codline-digits", "best").run_id == best
    assert client().get_model_version_by_alias("codline-digits", "last").run_id != best


def test_metrics_of_a_model_name_the_images_that_they_are_of(tracked: Workspace) -> None:
    sync_cycles(tracked, "c1")
    (model,) = client().search_logged_models([runs()["c1"].info.experiment_id])
    datasets = {metric.key: metric.dataset_name for metric in model.metrics}
    assert datasets["accuracy"] == datasets["accuracy_low"] == "digits test"
    assert datasets["validation_accuracy"] == "digits validation"
    contexts = {item.dataset.name: item.tags[0].value for item in runs()["c1"].inputs.dataset_inputs}
    assert contexts["digits validation"] == "validation"
