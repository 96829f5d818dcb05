"""Writes what `make bench` found into docs/performance.md, between its marks: python -m benchmarks.page"""

import json
import os
from pathlib import Path
from typing import Any

from codline.learning.compute import fingerprint

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/performance.md")
BEGIN, END = "<!-- what make bench found -->", "<!-- end -->"
COLUMNS = {
    "case": "",
    "contender": "",
    "seconds": ",.3f",
    "ratio": ",.2f",
    "quickest": ",.2f",
    "memory": ",.0f",
    "note": "",
}
HEADINGS = {"memory": "peak MB"}


def cell(row: dict[str, Any], column: str) -> str:
    value = row.get(column, "")
    if column == "memory" and value != "":
        value /= 1e6
    return format(value, COLUMNS[column]) if value != "" else ""


def table(found: dict[str, Any]) -> str:
    """Columns that nothing stands in are left out, and a case that goes on is not named again."""
    rows, last = found["figures"], None
    used = [column for column in COLUMNS if any(row.get(column, "") != "" for row in rows)]
    right = ["---:" if COLUMNS[column] else "---" for column in used]
    lines = [
        f"**{found['title']}**",
        "",
        "| " + " | ".join(HEADINGS.get(column, column) for column in used) + " |",
        "|" + "|".join(right) + "|",
    ]
    for row in rows:
        cells = [cell(row, column) for column in used]
        lines.append("| " + " | ".join(["" if row["case"] == last else cells[0], *cells[1:]]) + " |")
        last = row["case"]
    return "\n".join(lines)


def machine() -> str:
    found = fingerprint()
    return f"{os.cpu_count()} cores ({found['cpu']}), accelerator: {found['accelerator']}; {found['system']}, Python {found['python']}, torch {found['torch']}."


def written(page: str, results: list[dict[str, Any]]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n\n".join([BEGIN, machine(), *map(table, results), END]) + after


if __name__ == "__main__":
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
