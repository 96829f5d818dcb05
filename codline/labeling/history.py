"""history.csv in the folder of the answer sheets: what was asked and answered when. Rows are only ever added.

A row with a label is an answer, `previous_label` the one that it corrects; without a label it is a question, or, with a
previous label, an answer that was withdrawn.
"""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from codline.core.files import write_text
from codline.data.answers import Sheet, exact_id
from codline.data.csv_input import read_csv_cells

COLUMNS = ("time", "cycle", "id", "file", "label", "annotator", "previous_label")


class History:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.labels: dict[tuple[str, int], str] = {}  # the last label of an image in a cycle's sheet; "" if asked for
        self.ids: dict[str, int] = {}  # by file name
        for _, row in read_csv_cells(path, *COLUMNS) if path.exists() else ():
            if (image_id := exact_id(row["id"])) is not None:
                self.labels[row["cycle"], image_id] = row["label"]
                self.ids[row["file"]] = image_id

    def knows_id(self, image_id: int | None) -> bool:
        return any(image_id == known for _, known in self.labels)

    def record(self, sheets: dict[str, Sheet]) -> None:
        """Add what the sheets have and the history lacks."""
        rows = [row for cycle, sheet in sheets.items() for row in self.changes(cycle, sheet)]
        if rows:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ",".join(COLUMNS) + "\n"
            added = io.StringIO()
            csv.DictWriter(added, COLUMNS, lineterminator="\n").writerows(rows)
            write_text(self.path, text + ("" if text.endswith("\n") else "\n") + added.getvalue())

    def changes(self, cycle: str, sheet: Sheet) -> Iterable[dict[str, str | int]]:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        for image_id, row in sheet.rows.items():
            answer = sheet.answers.get(image_id)
            label, before = answer.label if answer else "", self.labels.get((cycle, image_id))
            if label != before:
                who = answer.annotator if answer else ""
                values = (time, cycle, image_id, row.file, label, who, before or "")
                yield dict(zip(COLUMNS, values, strict=True))
