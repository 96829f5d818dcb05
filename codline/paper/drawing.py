"""What all items share: the result of drawing one, grids of panels, curves with intervals, tables of estimates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from codline.evaluation.study_statistics import Estimate
from codline.paper.campaigns import PanelCampaigns
from codline.report.chart_layout import MUTED, WIDE, Margins, add_panel, new_figure, panel_titles
from codline.report.study_figure import COLORS, DASHES

NOTHING = "-"  # in a cell without a number
LEGEND_ROW, LEGEND_COLUMN = 15, 172  # points
PANEL_HEIGHT = 210
OURS, BASELINE = "#0a6ebd", "#5c6978"
STYLES = {  # arms that look the same in every figure
    "Ours-Semi": (OURS, "-"),
    "Ours-Task": (OURS, (0, (5, 2))),
    "Random": (BASELINE, "-"),
    "Random + L_U": (BASELINE, (0, (5, 2))),
}
OTHER_COLORS = [color for color in COLORS if color not in (OURS, BASELINE)]


@dataclass(frozen=True)
class Table:
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Drawing:
    """An item as it is shown: a figure, a table or both, and sentences about what is in them."""

    figure: Figure | None = None
    table: Table | None = None
    notes: list[str] = field(default_factory=list)


class Style(NamedTuple):
    color: str
    dashes: Any


def arm_styles(arms: Sequence[str]) -> dict[str, Style]:
    others = [arm for arm in arms if arm not in STYLES]
    free = [(color, dashes) for dashes in DASHES for color in OTHER_COLORS]
    styles = STYLES | dict(zip(others, free, strict=False))
    return {arm: Style(*styles[arm]) for arm in arms}


def panel_grid(count: int, columns: int, legend: int = 0, height: float = PANEL_HEIGHT) -> tuple[Figure, list[Axes]]:
    """Panels of equal size, row by row, above a legend of so many entries."""
    rows, width = -(-count // columns), WIDE / columns
    below = LEGEND_ROW * -(-legend // legend_columns()) + (4 if legend else 0)
    figure = new_figure(WIDE, height * rows + below)
    panels = []
    for row, column in (divmod(i, columns) for i in range(count)):
        margins = Margins(
            left=width * column + 44,
            bottom=below + height * (rows - 1 - row) + 38,
            right=width * (columns - 1 - column) + 12,
            top=height * row + 26,
        )
        panels.append(add_panel(figure, margins))
    return figure, panels


def legend_columns() -> int:
    return int(WIDE // LEGEND_COLUMN)


def add_figure_legend(figure: Figure, labels: dict[str, str], styles: dict[str, Style]) -> None:
    """Lines and names below the panels. `labels` are the names by arm."""
    height = figure.get_size_inches()[1] * 72
    for i, (arm, label) in enumerate(labels.items()):
        row, column = divmod(i, legend_columns())
        rows = -(-len(labels) // legend_columns())
        x, y = 12 + LEGEND_COLUMN * column, 6 + LEGEND_ROW * (rows - 1 - row)
        style = styles[arm]
        line: dict[str, Any] = {"color": style.color, "linestyle": style.dashes, "linewidth": 2}
        axes = figure.add_axes((x / WIDE, y / height, 22 / WIDE, 8 / height))
        axes.axis("off")
        axes.plot([0, 1], [0.5, 0.5], **line)
        figure.text((x + 28) / WIDE, (y + 4) / height, label, va="center", size=8.5)


def draw_estimates(
    axes: Axes, xs: Sequence[float], values: list[Estimate], style: Style, band: bool = True, **line: Any
) -> None:
    """A line through the means, with the intervals as a band; estimates that are not numbers are left out.

    Two seeds have no band: their interval is twelve times their deviation and hides everything.
    """
    shown = [(x, value) for x, value in zip(xs, values, strict=True) if np.isfinite(value["mean"])]
    if not shown:
        return
    places = [x for x, _ in shown]
    means, halves = (np.array([value[key] or 0.0 for _, value in shown]) for key in ("mean", "half"))
    if band and all(value["n"] > 2 for _, value in shown):
        axes.fill_between(places, means - halves, means + halves, color=style.color, alpha=0.12, linewidth=0)
    options: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3.5} | line
    axes.plot(places, means, color=style.color, linestyle=style.dashes, **options)


def limit_to_lines(axes: Axes) -> None:
    """Choose the y axis by the means: an interval over two or three seeds can be far wider than all differences."""
    lines = [np.asarray(line.get_ydata(), float) for line in axes.get_lines() if np.size(line.get_xdata()) > 2]
    values = np.concatenate([line[np.isfinite(line)] for line in lines] or [np.zeros(0)])
    if len(values):
        low, high = values.min(), values.max()
        pad = 0.35 * (high - low) or 0.1 * abs(high) or 1.0
        current = axes.get_ylim()
        axes.set_ylim(max(low - pad, current[0]), min(high + pad, current[1]))


def say_missing(axes: Axes, panel: PanelCampaigns) -> None:
    """An empty panel says why it is empty."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    reason = "no data at this scale" if panel.missing else "no campaign is done yet"
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=MUTED)


def title_panel(axes: Axes, panel: PanelCampaigns, right: str = "") -> None:
    """The paper's dataset and, to the right, what stands for it here."""
    stand_in = f"here {panel.used}" if panel.used and panel.is_stand_in else ""
    panel_titles(axes, panel.title, ", ".join(filter(None, [stand_in, right])))


def share_axis(axes: Axes) -> None:
    axes.set_xlabel("labelled images (%)")
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def panel_notes(panels: Sequence[PanelCampaigns]) -> list[str]:
    """What stands for the paper's datasets, and which of them have no data."""
    titles: dict[str, list[str]] = {}
    for panel in panels:
        if panel.missing:
            titles.setdefault(f"not drawn, as there are no data; {panel.missing}", []).append(panel.title)
        elif panel.description != panel.title:
            titles.setdefault(f"here {panel.description}", []).append(panel.title)
    notes = [f"{', '.join(names)}: {sentence}." for sentence, names in titles.items()]
    counts = {len(seeds) for panel in panels for seeds in seeds_by_arm(panel).values()}
    if counts:
        low, high = min(counts), max(counts)
        number = f"{high}" if low == high else f"{low} to {high}"
        notes.append(f"Means over {number} seed{'s' if high > 1 else ''}; ± and bands are 95% t-intervals over seeds.")
    return notes


def seeds_by_arm(panel: PanelCampaigns) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for campaign in panel.campaigns:
        seeds.setdefault(campaign.arm, set()).add(campaign.seed)
    return seeds


def format_estimate(value: Estimate | None, digits: int = 1) -> str:
    if value is None or not np.isfinite(value["mean"]):
        return NOTHING
    half = "" if value["half"] is None else f" ± {value['half']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{half}"


def format_published(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
