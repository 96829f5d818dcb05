"""Base class of annotators, which label the images of a query."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codline.core.params import Section


@dataclass(frozen=True)
class AnnotationRequest:
    cycle: str
    ids: np.ndarray
    true_labels: np.ndarray  # one per id; empty unless the annotator needs them
    classes: list[str]


@dataclass(frozen=True)
class Annotations:
    labels: np.ndarray  # one per requested id, in the same order
    wrong_count: int  # labels that are known to differ from the true ones


class Annotator(Section):
    needs_true_labels: ClassVar[bool] = True

    name: str

    @abstractmethod
    def annotate(self, request: AnnotationRequest, rng: np.random.Generator) -> Annotations:
        """Labels every requested image; `rng` decides simulated mistakes."""
