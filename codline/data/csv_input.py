"""CSV files written by people: tolerates a byte-order mark, blanks around cells and rows that end early."""

import csv
from collections.abc import Iterator
from pathlib import Path

from codline.core.errors import DataError


def read_csv_rows(path: Path, *required: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, {column: cell}); rows whose first required column is empty are skipped."""
    return (row for row in read_csv_cells(path, *required) if row[1][required[0]])


def read_csv_cells(path: Path, *required: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, {column: cell}) of every row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            columns = [name.strip().lower() for name in next(rows, [])]
            if not set(required) <= set(columns):
                found = f"found the columns {', '.join(columns) or 'of an empty file'}"
                raise DataError(f"{path}: {found}, expected {' and '.join(required)}, with a comma between them")
            if repeated := [name for name in required if columns.count(name) > 1]:
                raise DataError(f"{path}: found the column {repeated[0]} more than once, expected it once")
            for row in rows:
                cells = dict.fromkeys(columns, "") | dict(zip(columns, (cell.strip() for cell in row), strict=False))
                yield rows.line_num, cells
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as CSV UTF-8") from error
    except (csv.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason})") from error
