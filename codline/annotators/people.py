"""People: they look at the images (`codline query`) and write labels into a csv; until all are there, the campaign waits."""

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from codline.annotators.base import Annotator, Answers, Question
from codline.core.errors import DataError
from codline.core.params import near
from codline.data.csv_input import read


class People(Annotator):
    knows_truth: ClassVar[bool] = False

    name: Literal["people"] = "people"
    answers: str  # a csv with the columns id and label, for all cycles

    def answer(self, question: Question, rng: np.random.Generator) -> Answers:
        path = Path(self.answers)
        given = answered(path, question.classes) if path.exists() else {}
        asked = question.ids.tolist()
        if missing := sum(i not in given for i in asked):
            how = f"`codline query {question.cycle}` shows them and lists them in {path}: write the labels there, and run again"
            raise DataError(f"{path}: {missing} of the {len(asked)} images asked for have no label yet; {how}")
        return Answers(np.array([given[i] for i in asked], np.int32), 0)


def answered(path: Path, classes: list[str]) -> dict[int, int]:
    """The class of every image that has one by now."""
    given: dict[int, int] = {}
    for line, row in read(path, "id", "label"):
        if not row["id"].isdecimal():
            raise DataError(f"{path}: line {line}: found the id {row['id']!r}, expected a number")
        if not row["label"]:
            continue
        if row["label"] not in classes:
            raise DataError(f"{path}: line {line}: found the label {row['label']!r}{near(row['label'], classes)}")
        image, label = int(row["id"]), classes.index(row["label"])
        if given.setdefault(image, label) != label:
            raise DataError(
                f"{path}: line {line}: {image} is labelled {row['label']}, further up {classes[given[image]]}; expected one label"
            )
    return given
