"""The report's charts: arrays in, figures out. Sizes are in points; every colour is one of PALETTE, so that a page may swap them."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
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
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters everywhere
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called $
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
    "svg.hashsalt": "codline",  # ids in the file are drawn from it instead of from chance
}
WIDE, NARROW = 690, 310
LETTER = 5.7  # points, about, that a letter is wide
MANY = 24  # rows or columns beyond which a matrix shows colours only
COUNTABLE = 10_000  # larger counts do not fit a cell


class Margins(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float


class Ranking(NamedTuple):
    """A query cycle seen with hindsight: losses in buckets of descending score, and how many of the highest the score captured."""

    cycle: str
    bucket_losses: list[float]
    mean_loss: float
    asked: float  # share of the unlabelled images
    spearman: float | None
    capture: list[float]
    capture_gain: float


@contextmanager
def house_style() -> Iterator[None]:
    """Our settings on top of matplotlib's own: a matplotlibrc on the machine changes nothing."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@house_style()
def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


@house_style()
def svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    return buffer.getvalue()


@house_style()
def learning_curve(
    labels: Sequence[int], accuracies: Sequence[float], pool: int, width: float = WIDE, of: str = "accuracy"
) -> Figure:
    height, margins = (280, Margins(40, 50, 12, 22)) if width == WIDE else (240, Margins(36, 50, 8, 22))
    figure = blank(width, height)
    axes = panel(figure, margins)
    low, high = accuracy_limits(accuracies)
    reach = (labels[-1] - labels[0]) or labels[0]
    axes.set(xlim=(labels[0] - 0.05 * reach, labels[-1] + 0.06 * reach), ylim=(low, high + 0.05 * (high - low)))
    heading(axes, f"test {of}")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%" if y <= 1 else ""))
    axes.plot(
        labels,
        accuracies,
        color=ACCENT,
        linewidth=2.2,
        marker="o",
        markersize=7,
        markeredgecolor=PAPER,
        markeredgewidth=1.4,
        clip_on=False,
    )

    points = axes.transData.transform(np.column_stack([labels, accuracies])) * 72 / figure.dpi
    shown = spaced(points[:, 0], 38)
    axes.set_xticks([labels[i] for i in shown], [f"{labels[i]:,}\n{share(labels[i] / pool)}" for i in shown])
    axes.set_xlabel("labels, and their share of the pool")
    for i in shown:
        offset, across, along = free_side(points, i)
        axes.annotate(
            f"{100 * accuracies[i]:.1f}%",
            (labels[i], accuracies[i]),
            offset,
            textcoords="offset points",
            ha=across,
            va=along,
            weight="bold",
        )
    return figure


@house_style()
def training(curves: dict[str, dict[str, np.ndarray]], width: float = WIDE) -> Figure:
    """Losses of all cycles, {cycle: {name: values}}, one after the other: side by side nothing hides anything."""
    figure = blank(width, 230)
    axes = panel(figure, Margins(38, 36, 14, 42))
    ends = np.cumsum([len(next(iter(curve.values()))) for curve in curves.values()])
    starts = np.concatenate([[0], ends[:-1]])
    axes.set(xlim=(0, ends[-1] + 0.5), yscale="log", xlabel="epochs, all cycles in a row")
    colours = dict(zip(next(iter(curves.values())), (ACCENT, WARM), strict=False))
    for start, curve in zip(starts, curves.values(), strict=True):
        for name, values in curve.items():
            epochs, logarithmic = start + np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan)
            axes.plot(
                epochs,
                logarithmic,
                color=colours[name],
                linewidth=1.6,
                marker="o" if len(values) == 1 else None,
                markersize=3,
            )
    legend(axes, colours, 26)
    per_epoch = (width - 52) / ends[-1]
    shown = spaced((starts + ends) / 2 * per_epoch, 18)
    for i, (cycle, start, end) in enumerate(zip(curves, starts, ends, strict=True)):
        axes.axvline(end, color=GRID, linewidth=1, zorder=0)
        if i in shown:
            axes.annotate(
                cycle,
                ((start + end) / 2, 1),
                (0, 5),
                ("data", "axes fraction"),
                "offset points",
                ha="center",
                color=MUTED,
            )
    axes.set_xticks([0, *(ends[i] for i in spaced(ends * per_epoch, 26))])
    decades(axes)
    return figure


@house_style()
def trends(labels: Sequence[int], curves: Mapping[str, Sequence[float | None]], width: float = WIDE) -> Figure:
    """Means over the unlabelled images, cycle by cycle; a curve that has no value somewhere begins or breaks there."""
    figure = blank(width, 220)
    axes = panel(figure, Margins(38, 36, 14, 30))
    axes.set(yscale="log", xlabel="labels")
    colours = dict(zip(curves, (ACCENT, WARM), strict=False))
    for name, values in curves.items():
        logarithmic = [value or np.nan for value in values]
        axes.plot(
            labels,
            logarithmic,
            color=colours[name],
            linewidth=2,
            marker="o",
            markersize=6,
            markeredgecolor=PAPER,
            markeredgewidth=1.2,
        )
    legend(axes, colours, 14)
    reach = (labels[-1] - labels[0]) or labels[0]
    axes.set_xlim(labels[0] - 0.04 * reach, labels[-1] + 0.04 * reach)
    shown = spaced(np.array(labels) * (width - 52) / (1.08 * reach), 38)
    axes.set_xticks([labels[i] for i in shown], [f"{labels[i]:,}" for i in shown])
    decades(axes)
    return figure


@house_style()
def buckets(rankings: Sequence[Ranking], width: float = WIDE) -> Figure:
    figure, panels = small_multiples(len(rankings), width)
    for axes, ranking in zip(panels, rankings, strict=True):
        bars = np.array(ranking.bucket_losses)
        axes.axvspan(0, ranking.asked * len(bars), color=WARM, alpha=0.25, linewidth=0)
        axes.bar(np.arange(len(bars)) + 0.5, bars, 0.82, color=ACCENT)
        axes.axhline(ranking.mean_loss, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.set(xlim=(0, len(bars)), ylim=(0, bars.max() * 1.06 or 1), xticks=[])
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        titles(
            axes, ranking.cycle, "Spearman unknown" if ranking.spearman is None else f"Spearman {ranking.spearman:.2f}"
        )
        axes.set_xlabel("most wanted  →  least wanted", size=8)
    return figure


@house_style()
def capture(rankings: Sequence[Ranking], width: float = WIDE) -> Figure:
    """Of the k% hardest images, the share among the k% most wanted, for every k; the diagonal is chance, the upper edge the ideal."""
    figure, panels = small_multiples(len(rankings), width)
    for axes, ranking in zip(panels, rankings, strict=True):
        percent = np.arange(1, len(ranking.capture) + 1)
        axes.axvspan(0, 100 * ranking.asked, color=WARM, alpha=0.25, linewidth=0)
        axes.fill_between(percent, percent / 100, ranking.capture, color=ACCENT, alpha=0.12, linewidth=0)
        axes.plot([0, 100], [0, 1], color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.axhline(1, color=MUTED, linewidth=1)
        axes.plot(percent, ranking.capture, color=ACCENT, linewidth=1.8)
        axes.set(xlim=(0, 100), ylim=(0, 1.06), xticks=[])
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
        titles(axes, ranking.cycle, f"gain {ranking.capture_gain:.2f}")
        axes.set_xlabel("k: 0%  →  100%", size=8)
    return figure


@house_style()
def captures(panels: dict[str, dict[int, list[float]]], width: float = WIDE) -> Figure:
    """Capture curves of TOD, for every cycle one for each number of steps: the more steps, the darker."""
    figure, places = small_multiples(len(panels), width)
    for axes, (cycle, curves) in zip(places, panels.items(), strict=True):
        axes.plot([0, 100], [0, 1], color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.axhline(1, color=MUTED, linewidth=1)
        for place, (_, curve) in enumerate(sorted(curves.items())):
            axes.plot(np.arange(1, len(curve) + 1), curve, color=ACCENT, linewidth=1.6, alpha=(place + 1) / len(curves))
        axes.set(xlim=(0, 100), ylim=(0, 1.06), xticks=[])
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
        titles(axes, cycle, "T = " + ", ".join(map(str, sorted(curves))))
        axes.set_xlabel("k: 0%  →  100%", size=8)
    return figure


def small_multiples(count: int, width: float) -> tuple[Figure, list[Axes]]:
    columns, tall = min(count, 3 if width == WIDE else 2), 132
    rows, cell = -(-count // columns), width / columns
    figure = blank(width, tall * rows)
    places = [divmod(i, columns) for i in range(count)]
    margins = [
        Margins(cell * c + 36, tall * (rows - 1 - r) + 26, cell * (columns - 1 - c) + 8, tall * r + 24)
        for r, c in places
    ]
    return figure, [panel(figure, around) for around in margins]


def titles(axes: Axes, left: str, right: str) -> None:
    axes.set_title(left, loc="left", weight="bold")
    axes.set_title(right, loc="right", color=MUTED)
    axes.tick_params(axis="y", labelsize=8)


@house_style()
def per_class(accuracies: np.ndarray, classes: Sequence[str], cycles: Sequence[str], of: str = "accuracy") -> Figure:
    """Rows are classes, columns are cycles; the warmer a cell, the larger its share of errors."""
    errors = 1 - accuracies.T
    figure, axes = matrix(classes, cycles, row_height=23 if len(classes) <= MANY else 7)
    axes.set_xlabel(f"{of} in %, by cycle", labelpad=6)
    tint(axes, np.where(errors > 0, 0.08 + 0.62 * errors / (errors.max() or 1.0), 0.0), WARM)
    inscribe(axes, np.char.mod("%.0f", 100 * accuracies.T))
    return figure


@house_style()
def confusion(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """Rows are the truth, columns what the model said: right in one colour, errors in the other. Counts too large to read, as of pixels, in % of their row."""
    parts = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    right = np.diag(np.diag(parts))
    wrong = parts - right
    names = classes if len(classes) <= MANY else [""] * len(classes)
    figure, axes = matrix(names, names, row_height=23 if len(classes) <= MANY else 290 / len(classes))
    axes.set_xlabel("predicted", labelpad=6)
    axes.set_ylabel("actual")
    tint(axes, 0.5 * right, ACCENT)
    tint(axes, np.where(wrong > 0, 0.2 + 0.5 * wrong / (wrong.max() or 1.0), 0.0), WARM)
    inscribe(
        axes,
        np.where(counts > 0, counts.astype(str), "")
        if counts.max() < COUNTABLE
        else np.where(parts >= 0.005, np.char.mod("%.0f", 100 * parts), ""),
    )
    return figure


def matrix(rows: Sequence[str], columns: Sequence[str], row_height: float) -> tuple[Figure, Axes]:
    """Empty cells with names to the left and above."""
    rows, columns = [shortened(name) for name in rows], [shortened(name) for name in columns]
    left, above = 26 + LETTER * max(map(len, rows)), LETTER * max(map(len, columns))
    upright = above > (NARROW - left) / len(columns)
    figure = blank(NARROW, row_height * len(rows) + 40 + above * upright)
    axes = panel(figure, Margins(left, 6, 6, 34 + above * upright))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(
        np.arange(len(columns)) + 0.5, columns, rotation=90 * upright, size=9 if len(columns) <= MANY else 6
    )
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, size=min(9, row_height))
    axes.spines.bottom.set_visible(False)
    axes.grid(visible=False)
    return figure, axes


def tint(axes: Axes, opacities: np.ndarray, colour: str) -> None:
    where = np.argwhere(opacities > 0)
    corners = where[:, None, ::-1] + 0.5 + 0.47 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    axes.add_collection(
        PolyCollection(list(corners), facecolors=[to_rgba(colour, opacities[r, c]) for r, c in where], linewidths=0)
    )


def inscribe(axes: Axes, words: np.ndarray) -> None:
    """Write into the cells of a matrix, if there is room to read it."""
    if max(words.shape) <= MANY:
        wide = axes.get_window_extent().width * 72 / axes.figure.dpi / words.shape[1]
        size = min(8.0, 9 * wide / LETTER / max(map(len, words.flat)))
        for (row, column), word in np.ndenumerate(words):
            if word:
                axes.text(column + 0.5, row + 0.5, word, ha="center", va="center_baseline", size=size)


def blank(width: float, height: float) -> Figure:
    return Figure(figsize=(width / 72, height / 72))


def panel(figure: Figure, margins: Margins) -> Axes:
    width, height = figure.get_size_inches() * 72
    left, bottom, right, top = margins
    return figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    )


def heading(axes: Axes, words: str) -> None:
    """The y axis says what it is above itself, where it can be read without turning one's head."""
    axes.annotate(words, (0, 1), (-34, 8), "axes fraction", "offset points", color=MUTED)


def legend(axes: Axes, colours: dict[str, str], above: float) -> None:
    for column, (name, colour) in enumerate(colours.items()):
        axes.annotate(
            f"● {name}",
            (0, 1),
            (110 * column - 34, above),
            "axes fraction",
            "offset points",
            color=colour,
            weight="bold",
        )


def decades(axes: Axes) -> None:
    """Ticks of a logarithmic axis; where there is hardly a power of ten on it, round numbers."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(numticks=6) if high > 20 * low else MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(short))


def short(value: float, _: int | None = None) -> str:
    return f"{value:g}".replace("e-0", "e-")


def share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 else f"{100 * value:.2g}%"


def accuracy_limits(accuracies: Sequence[float]) -> tuple[float, float]:
    """Round numbers around the values, never above 100%."""
    pad = 0.1 * (max(accuracies) - min(accuracies)) or 0.05
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(
        max(0.0, min(accuracies) - pad), min(1.0, max(accuracies) + pad)
    )
    return float(ticks[0]), min(1.0, float(ticks[-1]))


def spaced(positions: np.ndarray, gap: float) -> list[int]:
    """Which of these ascending positions to label so that neighbours stay `gap` apart; the last one always."""
    kept = [len(positions) - 1]
    for i in range(len(positions) - 2, -1, -1):
        if positions[kept[-1]] - positions[i] >= gap:
            kept.append(i)
    return kept[::-1]


def free_side(points: np.ndarray, i: int) -> tuple[tuple[float, float], str, str]:
    """Where a label at point i does not lie on the line: (offset, horizontal and vertical alignment)."""
    steep = 0.3

    def slope(a: int, b: int) -> float:
        return (
            float((points[b, 1] - points[a, 1]) / max(points[b, 0] - points[a, 0], 1e-9))
            if a >= 0 and b < len(points)
            else 0.0
        )

    before, after = slope(i - 1, i), slope(i, i + 1)
    if after <= steep and before >= -steep:
        return (0, 8), "center", "bottom"
    if before <= steep and after >= -steep:
        return (0, -8), "center", "top"
    return ((7, -5), "left", "top") if after > 0 else ((7, 5), "left", "bottom")


def shortened(name: str, longest: int = 14) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"
