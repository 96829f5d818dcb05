"""Check all answer sheets of the campaign and keep their history: python -m codline.labeling.check_answers

Runs before any stage does. Imports no torch, so that it takes less than a second.
With the name of a cycle, it only says how many images of its query have no label yet.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from codline.annotators import AnyAnnotator
from codline.annotators.base import Annotator
from codline.annotators.people import People
from codline.core.errors import exit_on_error
from codline.data import answers, tables
from codline.data.answers import Answer, AnswerRow, KnownImages, Sheet
from codline.data.dataset_info import read_dataset_info
from codline.data.labels import read_ids
from codline.labeling.history import History
from codline.runtime.pipeline import Pipeline

LISTED_IMAGES = 5


class AnswerSheets:
    """The sheets of a campaign whose annotators are people."""

    def __init__(self, pipeline: Pipeline, people: People) -> None:
        self.pipeline = pipeline
        self.paths = {cycle: pipeline.root / people.answers_file(cycle) for cycle in pipeline.queries}
        self.history = History(pipeline.root / people.folder / "history.csv")
        self.classes = read_dataset_info(pipeline.path("prepare", "dataset")).classes
        self.images = KnownImages(pipeline.path("prepare", "files"), pipeline.path("prepare", "pool"))

    def read(self) -> tuple[dict[str, Sheet], list[str]]:
        """All sheets by cycle, and remarks for the user. All that is wrong with them is refused in one sentence."""
        existing = {cycle: path for cycle, path in self.paths.items() if path.exists()}
        sheets = {cycle: answers.read_sheet(path, self.images, self.classes) for cycle, path in existing.items()}
        unknown = {row: self.problem_of_unknown(row) for sheet in sheets.values() for row in sheet.unknown}
        problems = [problem for sheet in sheets.values() for problem in sheet.problems]
        problems += [f"{row.place}: {problem}" for row, problem in unknown.items() if problem]
        problems += contradictions(sheets)
        problems += self.contradictions_with_dataset([a for sheet in sheets.values() for a in sheet.answers.values()])
        answers.refuse(problems)
        removed = [row for row in unknown if not self.is_on_disk(row)]
        return sheets, [describe_removed(removed)] if removed else []

    def problem_of_unknown(self, row: AnswerRow) -> str | None:
        """Why a row without an image is refused; None if the image was removed, or is not read yet."""
        number, former = answers.exact_id(row.id), self.history.ids.get(row.file)
        if former is not None and self.images.known_ids([former]) and number is None:
            name = self.images.names.names_of(np.array([former]))[former][0]
            return f"{row.file} is called {name} now; expected that name, or the id {former}"
        if former is not None or self.history.knows_id(number) or self.is_on_disk(row):
            return None
        return f"found {row.image}, expected an image of the dataset"

    def is_on_disk(self, row: AnswerRow) -> bool:
        """Whether the row names a file that was added since prepare ran."""
        folder = self.pipeline.params["prepare"]["dataset"].get("path")
        return bool(folder and row.file and not row.id and (self.pipeline.root / folder / row.file).is_file())

    def contradictions_with_dataset(self, given: list[Answer]) -> Iterator[str]:
        labels = self.dataset_labels(np.array([answer.image_id for answer in given], np.int64))
        for answer in given:
            label = labels.get(answer.image_id, answer.label)
            if label != answer.label:
                found = f"{answer.row.image} is labelled {answer.label}, but the dataset has the label {label}"
                yield f"{answer.row.place}: {found}; expected one label"

    def dataset_labels(self, ids: np.ndarray) -> dict[int, str]:
        """Labels of the dataset that the campaign uses, of these images."""
        labels: dict[int, str] = {}
        for argument, schema in (("labeled", tables.LABELED), ("validation", tables.VALIDATION), ("test", tables.TEST)):
            path = self.pipeline.path("prepare", argument)
            table = tables.read_table(path, schema, "id", "label")
            table = table.filter(np.isin(table["id"].to_numpy(), ids))
            labels |= {i: self.classes[label] for i, label in zip(*table.to_pydict().values(), strict=True)}
        return labels


def contradictions(sheets: dict[str, Sheet]) -> Iterator[str]:
    """Images with different labels in two sheets."""
    first: dict[int, Answer] = {}
    for sheet in sheets.values():
        for image_id, answer in sheet.answers.items():
            earlier = first.setdefault(image_id, answer)
            if earlier.label != answer.label:
                yield answers.contradiction(answer.row, earlier)


def describe_removed(rows: list[AnswerRow]) -> str:
    names = ", ".join(row.image for row in rows[:LISTED_IMAGES])
    more = f" and {len(rows) - LISTED_IMAGES} more" if len(rows) > LISTED_IMAGES else ""
    return f"{rows[0].path.parent}: {answers.count_labels(len(rows))} not used (removed images): {names}{more}"


def read_annotator(params: dict[str, Any]) -> Annotator:
    annotator: Annotator = TypeAdapter(AnyAnnotator).validate_python(params["annotate"]["annotator"])
    return annotator


def check_answers(pipeline: Pipeline) -> list[str]:
    """Remarks for the user. Before the first prepare there is nothing that answers could be checked against."""
    annotator, pool = read_annotator(pipeline.params), pipeline.path("prepare", "pool")
    if not isinstance(annotator, People) or not pool.exists():
        return []
    sheets = AnswerSheets(pipeline, annotator)
    found, remarks = sheets.read()
    sheets.history.record(found)
    return remarks


def describe_missing(pipeline: Pipeline, cycle: str) -> str:
    """How many images of a query have no label yet, and what to do about it. Reads only."""
    annotator = read_annotator(pipeline.params)
    assert isinstance(annotator, People)
    sheets = AnswerSheets(pipeline, annotator)
    path, query = sheets.paths[cycle], read_ids(pipeline.path("annotate", "query", cycle), tables.QUERY).tolist()
    sheet = answers.read_sheet(path, sheets.images, sheets.classes) if path.exists() else Sheet()
    missing = len(answers.open_questions(sheet, query))
    if not missing:
        return f"{cycle}: all {len(query)} images of the query have a label; codline run goes on"
    found = f"{cycle}: {missing} of {len(query)} images in queries/{cycle} have no label yet"
    return f"{found}; fill in the column `label` of {path}, then codline run"


def main() -> None:
    with exit_on_error():
        pipeline, cycles = Pipeline(Path()), sys.argv[1:]
        remarks = [describe_missing(pipeline, cycle) for cycle in cycles] if cycles else check_answers(pipeline)
        for remark in remarks:
            sys.stdout.write(f"{remark}\n")


if __name__ == "__main__":
    main()
