"""Draws items from their request.json, or writes the page of a scale: python -m codline.paper {items,page} FOLDERS"""

import codline.data  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import csv
import io
import sys
from importlib import import_module
from pathlib import Path

from codline.core.errors import exit_on_error
from codline.core.files import atomic_write, write_json, write_text
from codline.paper.campaigns import read_request
from codline.paper.drawing import Drawing
from codline.paper.items import find_item
from codline.paper.page import write_page
from codline.report.chart_layout import to_png, to_svg


def draw_item(folder: Path) -> None:
    """Write figure.png, figure.svg, table.csv and, for the page and the terminal, item.json."""
    request = read_request(folder / "request.json")
    item = find_item(request.item)
    module, _, function = item.draw.partition(".")
    drawing: Drawing = getattr(import_module(f"codline.paper.{module}"), function)(request)
    if drawing.figure is not None:
        with atomic_write(folder / "figure.png") as part:
            part.write_bytes(to_png(drawing.figure))
        write_text(folder / "figure.svg", to_svg(drawing.figure))
    if drawing.table is not None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([drawing.table.columns, *drawing.table.rows])
        write_text(folder / "table.csv", text.getvalue())
    table = drawing.table and {"columns": drawing.table.columns, "rows": drawing.table.rows}
    has_figure = drawing.figure is not None
    write_json(folder / "item.json", {"table": table, "notes": drawing.notes, "has_figure": has_figure})


if __name__ == "__main__":
    with exit_on_error():
        for argument in sys.argv[2:]:
            {"items": draw_item, "page": write_page}[sys.argv[1]](Path(argument))
