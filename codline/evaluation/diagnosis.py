"""What diagnose looks at: each unlabelled image's true loss beside all that could have foretold it, a chunk of the pool at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from codline.acquisition.discrepancy import discrepancy
from codline.acquisition.image_losses import losses
from codline.data.array_store import Arrays
from codline.data.dense_outputs import NOTHING
from codline.data.masks import kept_targets
from codline.data.output_store import softmax
from codline.evaluation import rank_statistics

Pass = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]  # ids -> (ids, logits), batch by batch


@dataclass(frozen=True)
class Hindsight:
    """One value per image, rows aligned with `ids`."""

    ids: np.ndarray
    losses: np.ndarray
    moved: np.ndarray  # since the last cycle's model; nan where that saw nothing
    rivals: dict[str, np.ndarray]  # what other strategies would have scored
    classes: (
        np.ndarray
    )  # (images, classes): how often each class is in the truth: once, or in so many of the pixels kept


def looked_back(
    ids: np.ndarray, truth: np.ndarray, ours: Arrays, before: Arrays, classes: int, chunk: int
) -> Hindsight:
    """`truth` are labels as tables keep them."""
    parts = [
        of_chunk(ids[start : start + chunk], truth[start : start + chunk], ours, before, classes)
        for start in range(0, len(ids), chunk)
    ]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Hindsight(ids, joined.pop("losses"), joined.pop("moved"), classes=joined.pop("classes"), rivals=joined)


def of_chunk(ids: np.ndarray, truth: np.ndarray, ours: Arrays, before: Arrays, classes: int) -> dict[str, np.ndarray]:
    logits, wanted = ours.take(ids), kept_targets(truth)
    probs, kept, moved = softmax(logits), before.has(ids), np.full(len(ids), np.nan)
    if kept.any():
        moved[kept] = discrepancy(probs[kept], softmax(before.take(ids[kept])))
    return {
        "losses": losses(logits, wanted),
        "moved": moved,
        "classes": counted(wanted, classes),
    } | rank_statistics.rivals(probs)


def counted(wanted: np.ndarray, classes: int) -> np.ndarray:
    pixels = wanted.reshape(len(wanted), -1)
    return np.stack([np.bincount(row[row != NOTHING] if wanted.ndim > 1 else row, minlength=classes) for row in pixels])


def captured_by(other: Pass, seen: Hindsight, ours: Arrays) -> dict[str, Any]:
    """The capture curve of the discrepancy to another network."""
    moved = np.concatenate([discrepancy(softmax(ours.take(some)), softmax(logits)) for some, logits in other(seen.ids)])
    captured = rank_statistics.capture(moved, seen.losses, seen.ids)
    return {"capture": captured.tolist(), "capture_gain": rank_statistics.capture_gain(captured)}


def of_query(seen: Hindsight, asked: np.ndarray) -> dict[str, Any]:
    """`asked` says which of the images were. COD's rule for the first cycle is a matter of parameters: there `moved` is no rival."""
    overlaps = {
        name: rank_statistics.overlap(seen.ids[asked], seen.ids[rank_statistics.ranked(rival, seen.ids)[: asked.sum()]])
        for name, rival in seen.rivals.items()
    }
    moved = seen.moved[~np.isnan(seen.moved)]
    return {
        "mean_discrepancy": float(moved.mean()) if len(moved) else None,
        "mean_loss_of_query": float(seen.losses[asked].mean()),
        "overlap": overlaps,
        "classes_in_query": seen.classes[asked].sum(axis=0).tolist(),
    }
