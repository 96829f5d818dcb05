"""Answer sheets: csv files in which people label the images of a query, one file per query.

Columns `file`, `label`, `id` and optionally `annotator` (who gave the label). A row belongs to the image with its id.
Spreadsheets round ids of 19 digits, so the file decides where the id is missing or rounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from codline.core.errors import DataError
from codline.core.params_errors import format_value, suggestion
from codline.data import tables
from codline.data.csv_input import read_csv_cells
from codline.data.image_names import ImageNames
from codline.data.labels import read_ids

COLUMNS = ("file", "label", "id")
PEOPLE = "people"  # the annotator of a row that names none
LISTED_PROBLEMS = 10
MIN_DIGITS = 3  # of a rounded id
MAX_DIGITS = 19  # of any id


@dataclass(frozen=True)
class AnswerRow:
    path: Path
    line: int
    file: str
    label: str
    id: str
    annotator: str

    @property
    def place(self) -> str:
        return f"{self.path}: line {self.line}"

    @property
    def image(self) -> str:
        return self.file or f"id {self.id}"


@dataclass(frozen=True)
class Answer:
    image_id: int
    label: str
    annotator: str
    row: AnswerRow


@dataclass
class Sheet:
    rows: dict[int, AnswerRow] = field(default_factory=dict)  # by image, also those without a label
    answers: dict[int, Answer] = field(default_factory=dict)
    unknown: list[AnswerRow] = field(default_factory=list)  # labelled rows of images that are not in the dataset
    problems: list[str] = field(default_factory=list)


class KnownImages:
    """What a row can refer to: the images of the pool, and all that have a file name."""

    def __init__(self, files: Path, pool: Path) -> None:
        self.names = ImageNames(files)
        self.pool = np.sort(read_ids(pool, tables.POOL))

    def known_ids(self, ids: Iterable[int]) -> set[int]:
        wanted = np.array(sorted(ids), np.int64)
        return set(wanted[np.isin(wanted, self.pool) | np.isin(wanted, self.names.ids)].tolist())


def read_sheet(path: Path, images: KnownImages, classes: list[str]) -> Sheet:
    """All rows, matched with images; what is wrong with them is collected, not raised."""
    rows = read_rows(path)
    ids = images.known_ids(number for row in rows if (number := exact_id(row.id)) is not None)
    names = images.names.ids_of({row.file for row in rows if row.file})
    sheet = Sheet()
    for row in rows:
        image_id = match(row, ids, names)
        if isinstance(image_id, str):
            sheet.problems.append(f"{row.place}: {image_id}")
        elif image_id is not None:
            add_row(sheet, row, image_id, classes)
        elif row.label:
            sheet.unknown.append(row)
    return sheet


def read_rows(path: Path) -> list[AnswerRow]:
    rows = []
    for line, cells in read_csv_cells(path, "label"):
        if not {"file", "id"} & set(cells):
            raise DataError(f"{path}: found the columns {', '.join(cells)}, expected {', '.join(COLUMNS)}")
        file, label, image_id = (cells.get(name, "") for name in COLUMNS)
        row = AnswerRow(path, line, file, label, image_id, cells.get("annotator") or PEOPLE)
        if row.file or row.label or row.id:
            rows.append(row)
    return rows


def match(row: AnswerRow, ids: set[int], names: dict[str, int]) -> int | str | None:
    """The image of a row; None if the dataset has no such image; a text if the row contradicts itself."""
    number, named = exact_id(row.id), names.get(row.file)
    if not row.file and not row.id:
        return f"found the label {row.label!r}, but neither a file nor an id"
    if number in ids:
        if named is None or named == number:
            return number
        return f"found id {number} and the file {row.file}, which is another image (id {named}); expected one image"
    if named is None:
        return None if not row.id or is_number(row.id) else f"found the id {format_value(row.id)}, expected a number"
    if not row.id or is_rounded(row.id, named):
        return named
    if not is_number(row.id):
        return f"found the id {format_value(row.id)}, expected a number"
    return None  # other content under a name that was used before


def add_row(sheet: Sheet, row: AnswerRow, image_id: int, classes: list[str]) -> None:
    sheet.rows.setdefault(image_id, row)
    if not row.label:
        return
    if row.label not in classes:
        sheet.problems.append(f"{row.place}: found the label {row.label!r}{suggestion(row.label, classes)}")
        return
    earlier = sheet.answers.setdefault(image_id, Answer(image_id, row.label, row.annotator, row))
    if earlier.label != row.label:
        sheet.problems.append(contradiction(row, earlier))


def open_questions(sheet: Sheet, query: list[int]) -> list[int]:
    """The images of a query (by rank) that need a label: those without one in its sheet, then others that it lacks.

    A query needs as many labels as it has images, and every label in its sheet counts: a query changes when photographs
    are added or removed or an earlier answer is corrected, and nobody should be asked again because of that.
    """
    unanswered = [i for i in query if i not in sheet.answers]
    asked, others = ([i for i in unanswered if (i in sheet.rows) == is_asked] for is_asked in (True, False))
    given = len(sheet.answers) + len(sheet.unknown)
    return asked + others[: max(0, len(query) - given - len(asked))]


def contradiction(row: AnswerRow, earlier: Answer) -> str:
    where = f"line {earlier.row.line}" if earlier.row.path == row.path else earlier.row.place
    return f"{row.place}: {row.image} is labelled {row.label}, in {where} {earlier.label}; expected one label"


def exact_id(text: str) -> int | None:
    is_short = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_short and int(text) < 2**63 else None


def is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite() and Decimal(text).adjusted() < MAX_DIGITS
    except InvalidOperation:
        return False


def is_rounded(text: str, image_id: int) -> bool:
    """Whether a spreadsheet may have made this text of the id: 1.23457E+18, or zeros instead of the last digits."""
    if not is_number(text) or Decimal(text) <= 0:
        return False
    _, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    return len(digits) >= MIN_DIGITS and 0 < exponent < MAX_DIGITS and abs(Decimal(text) - image_id) <= 10**exponent


def refuse(problems: list[str]) -> None:
    """Raise all problems as one sentence: the first ones, and how many there are."""
    if problems:
        others = len(problems) - LISTED_PROBLEMS
        more = f"; and {others} more" if others > 0 else ""
        raise DataError("; ".join(problems[:LISTED_PROBLEMS]) + more)


def count_labels(count: int) -> str:
    """The beginning of a sentence."""
    return "1 label is" if count == 1 else f"{count} labels are"
