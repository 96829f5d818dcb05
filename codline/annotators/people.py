"""Labels that people write into csv files, one for each query. The campaign waits until a query has all labels."""

import logging
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, model_validator

from codline.annotators.base import AnnotationRequest, Annotations, Annotator
from codline.core.errors import DataError, WaitingForPeople
from codline.data import answers
from codline.data.answers import Answer

RESERVED_FOLDERS = ("data", "cycles", "models", "queries", "report")  # written by codline


def check_folder(value: Any) -> Any:
    """Becomes part of a command line in dvc.yaml, so it has neither blanks nor special characters."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_][\w./-]*", value, re.ASCII) is not None
    parts = PurePosixPath(value).parts if is_plain else ()
    if not is_plain or ".." in parts or parts[0] in RESERVED_FOLDERS or str(PurePosixPath(*parts)) != value:
        raise ValueError(
            "a folder in this directory, of letters, digits, - and _, such as answers "
            f"(not {', '.join(RESERVED_FOLDERS[:-1])} or {RESERVED_FOLDERS[-1]})"
        )
    return value


class People(Annotator):
    needs_true_labels: ClassVar[bool] = False

    name: Literal["people"] = "people"
    folder: Annotated[str, BeforeValidator(check_folder)] = "answers"  # has c1.csv, c2.csv, ... (see codline query)

    @model_validator(mode="before")
    @classmethod
    def refuse_single_file(cls, value: Any) -> Any:
        if isinstance(value, dict) and "answers" in value:
            raise ValueError("folder instead of answers: every query has a file of its own, such as answers/c1.csv")
        return value

    def answers_file(self, cycle: str) -> str:
        return f"{self.folder}/{cycle}.csv"

    def annotate(self, request: AnnotationRequest, rng: np.random.Generator) -> Annotations:
        images = request.images
        assert images is not None
        sheet = answers.read_sheet(request.answers, images, request.classes)
        answers.refuse(sheet.problems)
        new = [i for i in sorted(sheet.answers) if is_new(sheet.answers[i], request)]
        used = np.array(new, np.int64)[np.isin(new, images.pool)]
        if missing := len(answers.open_questions(sheet, request.ids.tolist())):
            todo = f"label the images in queries/{request.cycle} (fill in the column `label`), then run `codline run`"
            raise WaitingForPeople(
                f"{request.answers}: {missing} of {len(request.ids)} images have no label yet; {todo}"
            )
        if skipped := len(sheet.unknown) + len(new) - len(used):
            counted = answers.count_labels(skipped)
            logging.getLogger("codline").warning(
                "%s: %s not used, of images that are not in the pool", request.answers, counted
            )
        given = [sheet.answers[i] for i in used.tolist()]
        labels = np.array([request.classes.index(answer.label) for answer in given], np.int32)
        return Annotations(used, labels, [answer.annotator for answer in given])


def is_new(answer: Answer, request: AnnotationRequest) -> bool:
    """Whether the image has no label yet. An answer that repeats the label is ignored, another one is refused."""
    label = request.labeled.get(answer.image_id)
    if not isinstance(label, int):
        return True
    if request.classes[label] != answer.label:
        row = answer.row
        found = f"{row.place}: {row.image} is labelled {row.label}, but it already has the label"
        raise DataError(f"{found} {request.classes[label]}; expected one label")
    return False
