"""Base class of annotators, which label the images of a query."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from codline.core import params
from codline.core.errors import UserError
from codline.core.params import Section
from codline.data.answers import KnownImages


@dataclass(frozen=True)
class AnnotationRequest:
    cycle: str
    ids: np.ndarray
    true_labels: np.ndarray  # one per id; empty unless the annotator needs them
    classes: list[str]
    answers: Path = Path()  # the file that `answers_file` names
    images: KnownImages | None = None  # all images, by id and file name
    labeled: dict[int, int | bytes] = field(default_factory=dict)  # {id: label} of the labels so far


@dataclass(frozen=True)
class Annotations:
    ids: np.ndarray  # the requested ids; people may have labeled others in place of them, or besides them
    labels: np.ndarray  # one per id
    names: list[str]  # who gave each label
    wrong_count: int = 0  # labels that are known to differ from the true ones


class Annotator(Section):
    needs_true_labels: ClassVar[bool] = True

    name: str

    @abstractmethod
    def annotate(self, request: AnnotationRequest, rng: np.random.Generator) -> Annotations:
        """Labels the requested images; `rng` decides simulated mistakes."""

    def answers_file(self, cycle: str) -> str:
        """The file that the answers of a cycle's query are read from."""
        return params.ORACLE

    def check_answers_file(self, cycle: str, found: str | None) -> None:
        """`queries` of params.yaml must name the file that this annotator reads, since DVC tracks that one."""
        if found != self.answers_file(cycle):
            expected = f"expected {self.answers_file(cycle)}, which the annotator {self.name} reads"
            sentence = f"params.yaml: queries.{cycle}.answers: found {found or 'nothing'}, {expected}"
            raise UserError(f"{sentence}; `codline run` writes it")
