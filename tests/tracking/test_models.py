"""Registered models load without the workspace and predict as the workspace's own files do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codline.core.files import read_json
from codline.data import dataset_info, image_store, output_store
from codline.learning import compute, inference, model_file
from tests.tracking.mlflow_view import sync_cycles
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
    expected = probabilities(tracked, best_cycle(tracked), images)
    np.testing.assert_array_equal(np.load(tmp_path / "probabilities.npy"), expected)


def best_cycle(workspace: Workspace) -> str:
    cycles = workspace.pipeline.cycles
    metrics = {cycle: read_json(workspace.path("evaluate", "metrics", cycle)) for cycle in cycles}
    return max(cycles, key=lambda cycle: (metrics[cycle]["accuracy"], -metrics[cycle]["labels"]))


def probabilities(workspace: Workspace, cycle: str, images: Any) -> np.ndarray:
    dataset = dataset_info.read_dataset_info(workspace.path("prepare", "dataset"))
    path = workspace.path("train", "model", cycle)
    network, _ = model_file.load_network(path, classes=len(dataset.classes), shape=dataset.shape)
    normalize = inference.Normalize(dataset.mean, dataset.std, compute.select_device("cpu"))
    batches = inference.stream_logits(network, images.take, images.ids, normalize, 512)
    return output_store.softmax(np.concatenate([logits for _, logits in batches]))
