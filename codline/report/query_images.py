"""What is shown of a query: its images, and of segmentation the masks that came back and what the model had said."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from codline.data import masks, output_store, tables
from codline.data.dataset_info import Dataset
from codline.data.dense_outputs import STRIDE
from codline.report import gallery


def shown(
    ids: np.ndarray, take: Callable[[np.ndarray], np.ndarray], facts: Dataset, annotations: Path, outputs: Path
) -> np.ndarray:
    """(N, channels, height, width). Of segmentation three pictures side by side: the image, the answer, the model's guess before it."""
    images = take(ids)
    if facts.task == "classification":
        return images
    answers = answered(annotations)
    guesses: list[np.ndarray] | list[None] = guessed(ids, facts, outputs) if outputs.exists() else [None] * len(ids)
    known = [masks.one(cell) if isinstance(cell := answers.get(i), bytes) else None for i in ids.tolist()]
    return np.stack([gallery.triptych(*three) for three in zip(images, known, guesses, strict=True)])


def answered(annotations: Path) -> dict[int, int | bytes]:
    """{id: label}, as far as it has come back."""
    if not annotations.exists():
        return {}
    table = tables.read(annotations, tables.ANNOTATIONS)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def named(label: int | bytes, classes: list[str]) -> str:
    """A label in words."""
    if isinstance(label, bytes):
        present = np.unique(masks.one(label))
        return f"{(present < len(classes)).sum()} classes"
    return classes[label]


def guessed(ids: np.ndarray, facts: Dataset, outputs: Path) -> list[np.ndarray]:
    """The likeliest class of every pixel kept, for all of its square."""
    coarse = output_store.opened(outputs, facts.outputs).take(ids).argmax(axis=1).astype(np.uint8)
    rows, columns = (
        np.minimum(np.arange(side) // STRIDE, count - 1)
        for side, count in zip(facts.shape[1:], coarse.shape[1:], strict=True)
    )
    return list(coarse[:, rows][:, :, columns])
