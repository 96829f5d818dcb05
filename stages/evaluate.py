"""evaluate: this cycle's model on the test split -> metrics, and what it said of every test image."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, image_store, output_store, tables
from codline.data.masks import targets
from codline.evaluation import metrics as measures
from codline.learning import inference, model_file
from codline.learning.compute import configure
from stages.runner import In, Out, run

Chunks = Iterator[tuple[np.ndarray, np.ndarray]]  # ids, logits


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
    facts = dataset_info.opened(dataset)
    network, card = model_file.load_network(model, classes=len(facts.classes), shape=facts.shape)
    truth = tables.read(test, tables.TEST)
    ids, labels = truth["id"].to_numpy(), truth["label"].to_numpy()
    normalize = inference.Normalize(facts.mean, facts.std, device)
    chunks = inference.logits(network.to(device), image_store.opened(images).take, ids, normalize, params.batch_size)
    judge = judged_pixels if facts.task == "segmentation" else judged_images
    found, rows = judge(chunks, labels, facts.classes, params.calibration_bins)
    write_json(metrics, {"labels": card.labels} | found)
    tables.write_csv(rows, rows.schema, predictions)


def judged_images(chunks: Chunks, labels: np.ndarray, classes: list[str], bins: int) -> tuple[dict[str, Any], pa.Table]:
    parts = list(chunks)
    ids, logits = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    probs, names = output_store.softmax(logits), np.array(classes)
    columns = [ids, names[labels], names[probs.argmax(1)], probs.max(1)]
    return measures.classification(logits, labels, classes, bins), pa.table(columns, schema=tables.PREDICTIONS)


def judged_pixels(chunks: Chunks, labels: np.ndarray, classes: list[str], bins: int) -> tuple[dict[str, Any], pa.Table]:
    counts = measures.Segmentation(classes, bins)
    rows: list[dict[str, Any]] = []
    for some, logits in chunks:
        masks = targets(labels[len(rows) : len(rows) + len(some)])
        rows += [{"id": int(i)} | row for i, row in zip(some, counts.add(logits, masks), strict=True)]
    return counts.summary(), pa.Table.from_pylist(rows, schema=tables.IMAGES)


if __name__ == "__main__":
    run(evaluate)
