"""A cycle's model as MLflow serves it: uint8 images (N, channels, height, width) in, class probabilities out.

"Model from code": MLflow stores this file with the weights and dataset.json, and runs it to load them. No pickle.
"""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.pyfunc.model import PythonModel, PythonModelContext

BATCH_SIZE = 512


class ServedModel(PythonModel):
    def load_context(self, context: PythonModelContext) -> None:
        from codline.data import dataset_info
        from codline.learning import compute, inference, model_file  # torch is not needed to log the model

        dataset = dataset_info.read_dataset_info(Path(context.artifacts["dataset"]))
        path = Path(context.artifacts["model"])
        network, _ = model_file.load_network(path, classes=len(dataset.classes), shape=dataset.shape)
        device = compute.select_device("auto")
        self.network, self.normalize = network.to(device), inference.Normalize(dataset.mean, dataset.std, device)

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> np.ndarray:
        from codline.data import output_store
        from codline.learning import inference

        positions, images = np.arange(len(model_input)), model_input.__getitem__
        batches = inference.stream_logits(self.network, images, positions, self.normalize, BATCH_SIZE)
        return output_store.softmax(np.concatenate([logits for _, logits in batches]))


mlflow.models.set_model(ServedModel())
