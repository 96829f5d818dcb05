"""evaluate: metrics of this cycle's model on the test and validation splits, and its predictions for test images."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, output_store, tables
from codline.data.image_names import ImageNames
from codline.data.labels import read_labels
from codline.data.masks import decode_targets
from stages.runner import In, Out, run

if TYPE_CHECKING:
    from codline.evaluation.metrics import SegmentationMetrics

Stream = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]  # ids -> batches of ids and logits


class Params(Section):
    batch_size: PositiveInt
    calibration_bins: PositiveInt


class LabeledSplit(NamedTuple):
    ids: np.ndarray
    labels: np.ndarray  # class numbers, or encoded masks


class Evaluation(NamedTuple):
    metrics: dict[str, Any]
    details: dict[str, Any]
    columns: list[Any]  # of predictions.csv, after id and file


def evaluate(
    params: Params, *, compute: Compute, cycle: str, images: In, dataset: In, files: In, validation: In, test: In,
    model: In, metrics: Out, details: Out, predictions: Out,
) -> None:  # fmt: skip
    from codline.learning import model_file
    from codline.learning.compute import configure
    from codline.learning.image_reader import ImageReader

    device = configure(compute)
    info = dataset_info.read_dataset_info(dataset)
    network, card = model_file.load_network(model, classes=len(info.classes), shape=info.shape)
    reader = ImageReader(images, info, compute, params.batch_size)
    stream: Stream = partial(reader.stream_logits, network.to(device))
    classes = len(info.classes)
    tested = LabeledSplit(*read_labels(test, tables.TEST, classes))
    held_out = LabeledSplit(*read_labels(validation, tables.VALIDATION, classes, may_be_empty=True))
    is_segmentation = info.task == "segmentation"
    evaluate_task = evaluate_segmentation if is_segmentation else evaluate_classification
    schema = tables.SEGMENTATION_PREDICTIONS if is_segmentation else tables.PREDICTIONS
    result = evaluate_task(stream, tested, held_out, info.classes, params.calibration_bins)
    columns = [tested.ids, ImageNames(files).first_names(tested.ids), *result.columns]
    counts = {"test_images": len(tested.ids), "validation_images": len(held_out.ids)}
    write_json(metrics, {"labels": card.labels} | result.metrics)
    write_json(details, counts | result.details)
    tables.write_csv(pa.table(columns, schema=schema), schema, predictions)


def evaluate_classification(
    stream: Stream, test: LabeledSplit, validation: LabeledSplit, classes: list[str], bins: int
) -> Evaluation:
    from codline.evaluation.metrics import classification_metrics

    logits, names = gather_logits(stream, test.ids), np.array(classes)
    metrics, details = classification_metrics(logits, test.labels, classes, bins)
    if len(validation.ids):
        predicted = gather_logits(stream, validation.ids).argmax(axis=1)
        metrics["validation_accuracy"] = float((predicted == validation.labels).mean())
    probs = output_store.softmax(logits)
    return Evaluation(metrics, details, [names[test.labels], names[probs.argmax(1)], probs.max(1)])


def gather_logits(stream: Stream, ids: np.ndarray) -> np.ndarray:
    return np.concatenate([logits for _, logits in stream(ids)])


def evaluate_segmentation(
    stream: Stream, test: LabeledSplit, validation: LabeledSplit, classes: list[str], bins: int
) -> Evaluation:
    tested, rows = accumulate_masks(stream, test, classes, bins)
    metrics = tested.metrics()
    if len(validation.ids):
        metrics["validation_mean_iou"] = accumulate_masks(stream, validation, classes, bins)[0].mean_iou()
    return Evaluation(metrics, tested.details(), [[row[name] for row in rows] for name in rows[0]])


def accumulate_masks(
    stream: Stream, split: LabeledSplit, classes: list[str], bins: int
) -> tuple["SegmentationMetrics", list[dict[str, float]]]:
    """Metrics of a split, and of each of its images. Masks are decoded batch by batch."""
    from codline.evaluation.metrics import SegmentationMetrics

    metrics = SegmentationMetrics(classes, bins)
    rows: list[dict[str, float]] = []
    for ids, logits in stream(split.ids):
        masks = decode_targets(split.labels[len(rows) : len(rows) + len(ids)], len(classes))
        rows += metrics.add(logits, masks)
    return metrics, rows


if __name__ == "__main__":
    run(evaluate)
