"""Adds the images of a query to its answer sheet, with the labels that people gave in other sheets."""

import csv
import io
from pathlib import Path

from codline.core.errors import DataError
from codline.core.files import write_text
from codline.data.answers import COLUMNS, PEOPLE, Answer, Sheet


def complete_sheet(
    path: Path, sheet: Sheet, asked: list[int], names: dict[int, list[str]], given: dict[int, Answer]
) -> None:
    """Append a row for every image that is asked for and that the sheet lacks; drop unlabelled rows of all others.

    All other rows stay as people wrote them. `given` are answers in other sheets.
    """
    missing = [i for i in asked if i not in sheet.rows]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = without_lines(text, outdated_lines(sheet, asked))
    if not kept.strip():
        has_annotators = any(i in given and given[i].annotator != PEOPLE for i in missing)
        kept = ",".join([*COLUMNS, "annotator"] if has_annotators else COLUMNS) + "\n"
    if missing:
        kept += "" if kept.endswith("\n") else "\n"
        kept += new_rows(path, kept, missing, names, given)
    if kept != text:
        write_text(path, kept)


def new_rows(path: Path, text: str, missing: list[int], names: dict[int, list[str]], given: dict[int, Answer]) -> str:
    header = [name.strip().lower() for name in next(csv.reader(text.lstrip("\ufeff").splitlines()))]
    if "id" not in header and not all(i in names for i in missing):
        raise DataError(
            f"{path}: found the columns {', '.join(header)}, expected also id: the images have no file name"
        )
    rows = io.StringIO()
    writer = csv.DictWriter(rows, header, restval="", extrasaction="ignore", lineterminator="\n")
    for i in missing:
        label, who = (given[i].label, given[i].annotator) if i in given else ("", "")
        who = "" if who == PEOPLE else who
        writer.writerow({"id": i, "file": names.get(i, [""])[0], "label": label, "annotator": who})
    return rows.getvalue()


def outdated_lines(sheet: Sheet, asked: list[int]) -> set[int]:
    """Lines without a label, of images that are not asked for (any more)."""
    return {row.line for i, row in sheet.rows.items() if not row.label and i not in set(asked)}


def without_lines(text: str, numbers: set[int]) -> str:
    """Only if no cell has a line break; otherwise lines are not rows, and all of them stay."""
    lines = text.splitlines(keepends=True)
    if len(lines) != len(list(csv.reader(lines))):
        return text
    return "".join(line for number, line in enumerate(lines, 1) if number not in numbers)
