"""The page with all figures and tables that have been drawn at one scale: a single HTML file."""

from pathlib import Path

from codline.core.files import read_json, write_text
from codline.paper.items import ITEMS
from codline.paper.protocols import protocols
from codline.report.chart_layout import PALETTE
from codline.report.page import html_environment, inline_svg


def write_page(folder: Path) -> None:
    """`folder` is that of the scale, with a folder for each item."""
    sections = []
    for item in ITEMS:
        path = folder / item.name
        drawn = read_json(path / "item.json") if (path / "item.json").exists() else None
        has_figure = bool(drawn and drawn["has_figure"])
        svg = inline_svg(item.name, (path / "figure.svg").read_text(encoding="utf-8")) if has_figure else None
        sections.append({"item": item, "drawn": drawn, "svg": svg})
    template = html_environment(Path(__file__).parent / "templates").get_template("paper.html")
    html = template.render(sections=sections, scale=folder.name, about=protocols().scales[folder.name].about,
                           palette=PALETTE)  # fmt: skip
    write_text(folder / "index.html", html + "\n")
