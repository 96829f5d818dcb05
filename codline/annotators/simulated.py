"""Simulated annotator: returns the true labels, each replaced by a wrong one with probability `noise`."""

from typing import Literal

import numpy as np
from pydantic import Field

from codline.annotators.base import AnnotationRequest, Annotations, Annotator
from codline.data import masks


class Simulated(Annotator):
    name: Literal["simulated"] = "simulated"
    noise: float = Field(default=0.0, ge=0, le=1)

    def annotate(self, request: AnnotationRequest, rng: np.random.Generator) -> Annotations:
        true_labels, classes = request.true_labels, len(request.classes)
        is_mistaken = rng.random(len(true_labels)) < self.noise
        if true_labels.dtype == object:
            labels = with_wrong_masks(true_labels, np.flatnonzero(is_mistaken), classes, rng)
            return self.annotations(request, labels, int(is_mistaken.sum()) if classes > 1 else 0)
        wrong_labels = (true_labels + rng.integers(1, max(classes, 2), len(true_labels))) % classes
        labels = np.where(is_mistaken, wrong_labels, true_labels).astype(np.int32)
        return self.annotations(request, labels, int((labels != true_labels).sum()))

    def annotations(self, request: AnnotationRequest, labels: np.ndarray, wrong_count: int) -> Annotations:
        return Annotations(request.ids, labels, [self.name] * len(labels), wrong_count)


def with_wrong_masks(cells: np.ndarray, rows: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Encoded masks, in which the given rows have every class replaced by another one."""
    result = cells.copy()
    for row in rows:
        replacement = np.arange(256, dtype=np.uint8)
        replacement[:classes] = (np.arange(classes) + rng.integers(1, max(classes, 2))) % classes
        result[row] = masks.encode_mask(replacement[masks.decode_mask(cells[row])])
    return result
