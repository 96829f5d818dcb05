"""Writes the results of `make bench` into docs/benchmarks.md, between two markers: python -m benchmarks.page"""

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.harness import FORMATS, table_cells
from codline.learning.compute import fingerprint

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/benchmarks.md")
BEGIN, END = "<!-- begin: written by make bench -->", "<!-- end: written by make bench -->"
PAGE_FORMATS = FORMATS | {"seconds": ",.3f", "ratio": ",.2f", "quickest": ",.2f"}


def markdown_table(results: dict[str, Any]) -> str:
    """A case is named in its first row only."""
    headings, rows = table_cells(results["figures"], PAGE_FORMATS)
    alignments = ["---" if heading in ("case", "contender", "note") else "---:" for heading in headings]
    lines = [f"**{results['title']}**", "", "| " + " | ".join(headings) + " |", "|" + "|".join(alignments) + "|"]
    previous_case = None
    for case, *cells in rows:
        lines.append("| " + " | ".join(["" if case == previous_case else case, *cells]) + " |")
        previous_case = case
    return "\n".join(lines)


def machine_description() -> str:
    machine = fingerprint()
    hardware = f"{os.cpu_count()} cores ({machine['cpu']}), accelerator: {machine['accelerator']}"
    return f"{hardware}; {machine['system']}, Python {machine['python']}, torch {machine['torch']}."


def update_page(page: str, results: list[dict[str, Any]]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n\n".join([BEGIN, machine_description(), *map(markdown_table, results), END]) + after


if __name__ == "__main__":
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
