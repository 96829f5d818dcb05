"""Tables that people write: csv files, with a mark at the beginning, blanks around cells and rows cut short."""

import csv
from collections.abc import Iterator
from pathlib import Path

from codline.core.errors import DataError


def read(path: Path, *wanted: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a csv that has at least these columns, each with its line; rows without the first of them are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            columns = [name.strip().lower() for name in next(rows, [])]
            if not set(wanted) <= set(columns):
                found = ", ".join(columns) or "of an empty file"
                raise DataError(
                    f"{path}: found the columns {found}, expected {' and '.join(wanted)}, with a comma between them"
                )
            for row in rows:
                cells = dict.fromkeys(columns, "") | dict(zip(columns, (cell.strip() for cell in row), strict=False))
                if cells[wanted[0]]:
                    yield rows.line_num, cells
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as CSV UTF-8") from error
    except (csv.Error, OSError) as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror if isinstance(error, OSError) else error})"
        ) from error
