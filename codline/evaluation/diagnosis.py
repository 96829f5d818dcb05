"""Diagnosis of a simulated query: true losses of the unlabeled images next to everything that could predict them.

Outputs are read chunk by chunk, so memory does not grow with their size.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from codline.acquisition.discrepancy import discrepancy
from codline.data.array_store import ArrayStore
from codline.data.dense_outputs import IGNORE_INDEX
from codline.data.masks import decode_subsampled_targets
from codline.data.output_store import OutputStore, softmax
from codline.evaluation import rank_statistics
from codline.learning.image_losses import image_losses


@dataclass(frozen=True)
class ImageStatistics:
    """One row per unlabeled image, aligned with `ids`."""

    ids: np.ndarray
    losses: np.ndarray
    discrepancies: np.ndarray  # to the previous cycle's outputs; nan for images without any
    strategy_scores: dict[str, np.ndarray]  # what other strategies would have scored, by name
    class_counts: np.ndarray  # (images, classes): labels of each class, or stored pixels of each class in the mask


def image_statistics(
    ids: np.ndarray,
    labels: np.ndarray,
    outputs: ArrayStore,
    previous: OutputStore,
    random_scores: np.ndarray,
    *,
    classes: int,
    chunk_size: int,
) -> ImageStatistics:
    """`labels` are as tables store them (class numbers or encoded masks), `random_scores` the strategy `random`'s."""
    slices = [slice(start, start + chunk_size) for start in range(0, len(ids), chunk_size)]
    chunks = [chunk_statistics(ids[rows], labels[rows], outputs, previous, classes) for rows in slices]
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    own = {name: columns.pop(name) for name in ("losses", "discrepancies", "class_counts")}
    scores = columns | {"random": random_scores}
    # Against the untrained model of `init`, COD follows another rule, which depends on the strategy's parameters.
    if previous.metadata["cycle"] != "init" and not np.isnan(own["discrepancies"]).any():
        scores["cod"] = own["discrepancies"]
    return ImageStatistics(ids, strategy_scores=scores, **own)


def chunk_statistics(
    ids: np.ndarray, labels: np.ndarray, outputs: ArrayStore, previous: ArrayStore, classes: int
) -> dict[str, np.ndarray]:
    logits, targets = outputs.take(ids), decode_subsampled_targets(labels, classes)
    probs, has_previous, discrepancies = softmax(logits), previous.contains(ids), np.full(len(ids), np.nan)
    if has_previous.any():
        discrepancies[has_previous] = discrepancy(probs[has_previous], softmax(previous.take(ids[has_previous])))
    return {
        "losses": image_losses(logits, targets),
        "discrepancies": discrepancies,
        "class_counts": count_classes(targets, classes),
        **rank_statistics.uncertainty_scores(probs),
    }


def count_classes(targets: np.ndarray, classes: int) -> np.ndarray:
    rows = targets.reshape(len(targets), -1)
    is_mask = targets.ndim > 1
    return np.stack([np.bincount(row[row != IGNORE_INDEX] if is_mask else row, minlength=classes) for row in rows])


def discrepancy_capture(
    statistics: ImageStatistics, outputs: ArrayStore, other_logits: Iterable[tuple[np.ndarray, np.ndarray]]
) -> dict[str, Any]:
    """Capture curve of the discrepancy between stored outputs and another network's, given as (ids, logits) batches."""
    scores = np.concatenate([discrepancy(softmax(outputs.take(ids)), softmax(logits)) for ids, logits in other_logits])
    captured = rank_statistics.capture_curve(scores, statistics.losses, statistics.ids)
    return {"capture": captured.tolist(), "capture_gain": rank_statistics.capture_gain(captured)}


def query_statistics(statistics: ImageStatistics, is_queried: np.ndarray) -> dict[str, Any]:
    """Losses and classes of the query, and its overlap with the queries of other strategies.

    `loss_ratio`, the mean loss of the query by that of all unlabeled images, compares any two strategies: 1 is chance.
    """
    ids, query = statistics.ids, statistics.ids[is_queried]
    mean, mean_of_query = (float(losses.mean()) for losses in (statistics.losses, statistics.losses[is_queried]))
    overlaps = {
        name: rank_statistics.overlap(query, ids[rank_statistics.descending_order(scores, ids)[: len(query)]])
        for name, scores in statistics.strategy_scores.items()
    }
    discrepancies = statistics.discrepancies[~np.isnan(statistics.discrepancies)]
    return {
        "mean_discrepancy": float(discrepancies.mean()) if len(discrepancies) else None,
        "mean_loss": mean,
        "mean_loss_of_query": mean_of_query,
        "loss_ratio": mean_of_query / mean if mean else None,
        "overlap": overlaps,
        "classes_in_query": statistics.class_counts[is_queried].sum(axis=0).tolist(),
    }
