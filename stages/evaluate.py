"""evaluate: metrics of this cycle's model on the test split, and its prediction for every test image."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, image_store, output_store, tables
from codline.data.masks import decode_targets
from codline.evaluation.metrics import SegmentationMetrics, classification_metrics
from codline.learning import inference, model_file
from codline.learning.compute import configure
from stages.runner import In, Out, run

Batches = Iterator[tuple[np.ndarray, np.ndarray]]  # ids, logits
Evaluation = tuple[dict[str, Any], pa.Table]  # metrics, and a row per image


class Params(Section):
    batch_size: PositiveInt
    calibration_bins: PositiveInt


def evaluate(
    params: Params,
    *,
    compute: Compute,
    cycle: str,
    images: In,
    dataset: In,
    test: In,
    model: In,
    metrics: Out,
    predictions: Out,
) -> None:
    device = configure(compute)
    info = dataset_info.read_dataset_info(dataset)
    network, card = model_file.load_network(model, classes=len(info.classes), shape=info.shape)
    truth = tables.read_table(test, tables.TEST)
    ids, labels = truth["id"].to_numpy(), truth["label"].to_numpy()
    take, normalize = image_store.open_image_store(images).take, inference.Normalize(info.mean, info.std, device)
    batches = inference.stream_logits(network.to(device), take, ids, normalize, params.batch_size)
    evaluate_task = evaluate_segmentation if info.task == "segmentation" else evaluate_classification
    values, rows = evaluate_task(batches, labels, info.classes, params.calibration_bins)
    write_json(metrics, {"labels": card.labels} | values)
    tables.write_csv(rows, rows.schema, predictions)


def evaluate_classification(batches: Batches, labels: np.ndarray, classes: list[str], bins: int) -> Evaluation:
    ids, logits = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    probs, names = output_store.softmax(logits), np.array(classes)
    columns = [ids, names[labels], names[probs.argmax(1)], probs.max(1)]
    return classification_metrics(logits, labels, classes, bins), pa.table(columns, schema=tables.PREDICTIONS)


def evaluate_segmentation(batches: Batches, labels: np.ndarray, classes: list[str], bins: int) -> Evaluation:
    """Masks are decoded batch by batch."""
    metrics = SegmentationMetrics(classes, bins)
    rows: list[dict[str, Any]] = []
    for ids, logits in batches:
        masks = decode_targets(labels[len(rows) : len(rows) + len(ids)])
        rows += [{"id": int(i)} | row for i, row in zip(ids, metrics.add(logits, masks), strict=True)]
    return metrics.summary(), pa.Table.from_pylist(rows, schema=tables.SEGMENTATION_PREDICTIONS)


if __name__ == "__main__":
    run(evaluate)
