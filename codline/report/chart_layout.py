"""Style, panels, ticks and number formats shared by all charts. Sizes are in points.

Every color of a chart is one of PALETTE, so that the page can replace them in dark mode.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

PALETTE = {
    "ink": "#17212d",
    "muted": "#5c6978",
    "grid": "#e1e6ec",
    "paper": "#ffffff",
    "accent": "#0a6ebd",
    "warm": "#dd6b20",
}
INK, MUTED, GRID, PAPER, ACCENT, WARM = PALETTE.values()
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same glyphs on every machine
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # class names may contain $
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "grid.color": GRID,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "svg.fonttype": "none",
    "svg.hashsalt": "codline",  # makes the ids in SVG files reproducible
}
WIDE, NARROW = 690, 310
LETTER_WIDTH = 5.7  # approximate
MAX_WRITTEN_CELLS = 24  # a matrix with more rows or columns shows colors only


class Margins(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float


@contextmanager
def chart_style() -> Iterator[None]:
    """Matplotlib's defaults with STYLE on top, whatever a matplotlibrc on the machine sets."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@chart_style()
def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


@chart_style()
def to_svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width / 72, height / 72))


def add_panel(figure: Figure, margins: Margins) -> Axes:
    width, height = figure.get_size_inches() * 72
    left, bottom, right, top = margins
    box = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    return figure.add_axes(box)


def small_multiples(count: int, width: float) -> tuple[Figure, list[Axes]]:
    """A grid of `count` small panels."""
    columns, row_height = min(count, 3 if width == WIDE else 2), 132
    rows, column_width = -(-count // columns), width / columns
    figure = new_figure(width, row_height * rows)
    panels = []
    for row, column in (divmod(i, columns) for i in range(count)):
        margins = Margins(
            left=column_width * column + 36,
            bottom=row_height * (rows - 1 - row) + 26,
            right=column_width * (columns - 1 - column) + 8,
            top=row_height * row + 24,
        )
        panels.append(add_panel(figure, margins))
    return figure, panels


def matrix_axes(rows: Sequence[str], columns: Sequence[str], row_height: float) -> tuple[Figure, Axes]:
    """Empty cells with names to the left and above."""
    rows, columns = [shorten(name) for name in rows], [shorten(name) for name in columns]
    left, above = 26 + LETTER_WIDTH * max(map(len, rows)), LETTER_WIDTH * max(map(len, columns))
    vertical = above > (NARROW - left) / len(columns)
    figure = new_figure(NARROW, row_height * len(rows) + 40 + above * vertical)
    axes = add_panel(figure, Margins(left, 6, 6, 34 + above * vertical))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    name_size = 9 if len(columns) <= MAX_WRITTEN_CELLS else 6
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90 * vertical, size=name_size)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, size=min(9, row_height))
    axes.spines.bottom.set_visible(False)
    axes.grid(visible=False)
    return figure, axes


def panel_titles(axes: Axes, left: str, right: str) -> None:
    axes.set_title(left, loc="left", weight="bold")
    axes.set_title(right, loc="right", color=MUTED)
    axes.tick_params(axis="y", labelsize=8)


def y_axis_title(axes: Axes, text: str) -> None:
    """Write the y axis's title horizontally above it, which is easier to read than rotated."""
    axes.annotate(text, (0, 1), (-34, 8), "axes fraction", "offset points", color=MUTED)


def add_legend(axes: Axes, colors: Mapping[str, str], above: float) -> None:
    for column, (name, color) in enumerate(colors.items()):
        offset = (110 * column - 34, above)
        axes.annotate(f"● {name}", (0, 1), offset, "axes fraction", "offset points", color=color, weight="bold")


def log_ticks(axes: Axes) -> None:
    """Ticks of a logarithmic y axis: powers of ten, or round numbers if it spans hardly more than one."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(numticks=6) if high > 20 * low else MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(format_tick))


def accuracy_limits(accuracies: Sequence[float]) -> tuple[float, float]:
    """Round numbers around the values, never above 100%."""
    pad = 0.1 * (max(accuracies) - min(accuracies)) or 0.05
    low, high = max(0.0, min(accuracies) - pad), min(1.0, max(accuracies) + pad)
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return float(ticks[0]), min(1.0, float(ticks[-1]))


def spaced_indices(positions: np.ndarray, gap: float) -> list[int]:
    """Indices of ascending positions to label so that neighbors are at least `gap` apart; always the last one."""
    indices = [len(positions) - 1]
    for i in range(len(positions) - 2, -1, -1):
        if positions[indices[-1]] - positions[i] >= gap:
            indices.append(i)
    return indices[::-1]


def label_placement(points: np.ndarray, i: int) -> tuple[tuple[float, float], str, str]:
    """Place the label of point i off the line: its offset, horizontal and vertical alignment."""
    steep = 0.3

    def slope(a: int, b: int) -> float:
        if a < 0 or b >= len(points):
            return 0.0
        return float((points[b, 1] - points[a, 1]) / max(points[b, 0] - points[a, 0], 1e-9))

    before, after = slope(i - 1, i), slope(i, i + 1)
    if after <= steep and before >= -steep:
        return (0, 8), "center", "bottom"
    if before <= steep and after >= -steep:
        return (0, -8), "center", "top"
    return ((7, -5), "left", "top") if after > 0 else ((7, 5), "left", "bottom")


def format_tick(value: float, _: int | None = None) -> str:
    return f"{value:g}".replace("e-0", "e-")


def format_share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 else f"{100 * value:.2g}%"


def shorten(name: str, max_length: int = 14) -> str:
    return name if len(name) <= max_length else name[: max_length - 1] + "…"
