"""A cycle's model as MLflow serves it: uint8 images (N, channels, height, width) in, class probabilities (N, classes) out.

Models from code: MLflow keeps this file, the weights and dataset.json, and runs this file to load them. Nothing is pickled.
"""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.pyfunc.model import PythonModel, PythonModelContext

BATCH = 512


class Classifier(PythonModel):
    def load_context(self, context: PythonModelContext) -> None:
        from codline.data import dataset_info
        from codline.learning import compute, inference, model_file  # torch: not while the model is logged

        facts = dataset_info.opened(Path(context.artifacts["dataset"]))
        network, _ = model_file.load_network(
            Path(context.artifacts["model"]), classes=len(facts.classes), shape=facts.shape
        )
        device = compute.device("auto")
        self.network, self.normalize = network.to(device), inference.Normalize(facts.mean, facts.std, device)

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> np.ndarray:  # noqa: ARG002
        from codline.data import output_store
        from codline.learning import inference

        chunks = inference.logits(
            self.network, model_input.__getitem__, np.arange(len(model_input)), self.normalize, BATCH
        )
        return output_store.softmax(np.concatenate([logits for _, logits in chunks]))


mlflow.models.set_model(Classifier())
