"""The report's charts: arrays in, figures out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from codline.core.primary_metric import PrimaryMetric
from codline.report.chart_layout import (
    ACCENT,
    GRID,
    INK,
    LETTER_WIDTH,
    MAX_WRITTEN_CELLS,
    MUTED,
    PAPER,
    WARM,
    WIDE,
    Margins,
    accuracy_limits,
    add_legend,
    add_panel,
    chart_style,
    format_share,
    format_tick,
    label_placement,
    log_ticks,
    matrix_axes,
    new_figure,
    panel_titles,
    small_multiples,
    spaced_indices,
    y_axis_title,
)

MAX_WRITTEN_COUNT = 10_000  # larger counts do not fit into a cell
DASHED = (0, (3, 2))
# Steps, mean squared gradient norms and their coefficients of variation over images.
NormCurve = tuple[np.ndarray, np.ndarray, np.ndarray]


class RankingQuality(NamedTuple):
    """How well the scores of a query cycle rank the unlabeled images by their true loss."""

    cycle: str
    bucket_losses: list[float]
    mean_loss: float
    queried_share: float  # of the unlabeled images
    spearman: float | None
    capture: list[float]
    capture_gain: float


@chart_style()
def learning_curve(labels: Sequence[int], primary: Sequence[PrimaryMetric], pool: int, width: float = WIDE) -> Figure:
    """The primary metric with its interval as a band; that of a single cycle is a line."""
    height, margins = (280, Margins(40, 50, 12, 22)) if width == WIDE else (240, Margins(36, 50, 8, 22))
    figure = new_figure(width, height)
    axes = add_panel(figure, margins)
    values, lows, highs = ([getattr(each, name) for each in primary] for name in ("value", "low", "high"))
    low, high = accuracy_limits([*lows, *highs])
    reach = (labels[-1] - labels[0]) or labels[0]
    axes.set(xlim=(labels[0] - 0.05 * reach, labels[-1] + 0.06 * reach), ylim=(low, high + 0.05 * (high - low)))
    y_axis_title(axes, f"test {primary[0].name}, with its 95% interval")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%" if y <= 1 else ""))
    markers: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": PAPER, "markeredgewidth": 1.4}
    axes.fill_between(labels, lows, highs, color=ACCENT, alpha=0.12, linewidth=0)
    if len(labels) == 1:
        axes.vlines(labels, lows, highs, color=ACCENT, alpha=0.3, linewidth=4)
    axes.plot(labels, values, color=ACCENT, linewidth=2.2, clip_on=False, **markers)

    points = axes.transData.transform(np.column_stack([labels, values])) * 72 / figure.dpi
    labeled = spaced_indices(points[:, 0], 38)
    axes.set_xticks([labels[i] for i in labeled], [f"{labels[i]:,}\n{format_share(labels[i] / pool)}" for i in labeled])
    axes.set_xlabel("labels (share of the pool)")
    for i in labeled:
        offset, horizontal, vertical = label_placement(points, i)
        text, where = f"{100 * values[i]:.1f}%", (labels[i], values[i])
        axes.annotate(text, where, offset, textcoords="offset points", ha=horizontal, va=vertical, weight="bold")
    return figure


@chart_style()
def training_losses(curves: dict[str, dict[str, np.ndarray]], width: float = WIDE) -> Figure:
    """Losses per epoch, {cycle: {name: values}}, with the cycles side by side so that no curve hides another."""
    figure = new_figure(width, 230)
    axes = add_panel(figure, Margins(38, 36, 14, 42))
    ends = np.cumsum([len(next(iter(curve.values()))) for curve in curves.values()])
    starts = np.concatenate([[0], ends[:-1]])
    axes.set(xlim=(0, ends[-1] + 0.5), yscale="log", xlabel="epochs, counted over all cycles")
    colors = dict(zip(next(iter(curves.values())), (ACCENT, WARM), strict=False))
    for start, curve in zip(starts, curves.values(), strict=True):
        for name, values in curve.items():
            epochs, positive = start + np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan)
            marker = "o" if len(values) == 1 else None
            axes.plot(epochs, positive, color=colors[name], linewidth=1.6, marker=marker, markersize=3)
    add_legend(axes, colors, 26)
    points_per_epoch = (width - 52) / ends[-1]
    labeled = spaced_indices((starts + ends) / 2 * points_per_epoch, 18)
    for i, (cycle, start, end) in enumerate(zip(curves, starts, ends, strict=True)):
        axes.axvline(end, color=GRID, linewidth=1, zorder=0)
        if i in labeled:
            where, systems = ((start + end) / 2, 1), ("data", "axes fraction")
            axes.annotate(cycle, where, (0, 5), systems, "offset points", ha="center", color=MUTED)
    axes.set_xticks([0, *(ends[i] for i in spaced_indices(ends * points_per_epoch, 26))])
    log_ticks(axes)
    return figure


@chart_style()
def trends(labels: Sequence[int], curves: Mapping[str, Sequence[float | None]], width: float = WIDE) -> Figure:
    """Means over images against the number of labels; a missing value interrupts its curve."""
    figure = new_figure(width, 220)
    axes = add_panel(figure, Margins(38, 36, 14, 30))
    axes.set(yscale="log", xlabel="labels")
    colors = dict(zip(curves, (ACCENT, WARM), strict=False))
    markers: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": PAPER, "markeredgewidth": 1.2}
    for name, values in curves.items():
        axes.plot(labels, [value or np.nan for value in values], color=colors[name], linewidth=2, **markers)
    add_legend(axes, colors, 14)
    reach = (labels[-1] - labels[0]) or labels[0]
    axes.set_xlim(labels[0] - 0.04 * reach, labels[-1] + 0.04 * reach)
    labeled = spaced_indices(np.array(labels) * (width - 52) / (1.08 * reach), 38)
    axes.set_xticks([labels[i] for i in labeled], [f"{labels[i]:,}" for i in labeled])
    log_ticks(axes)
    return figure


@chart_style()
def gradient_norms(cycles: Mapping[str, NormCurve], width: float = WIDE) -> Figure:
    """Mean squared gradient norms, {cycle: (steps, means, coefficients of variation)}, with the deviation as a band.

    The last step of each cycle is its end. Cycles have the same width, however many steps they take.
    """
    figure = new_figure(width, 220)
    axes = add_panel(figure, Margins(38, 14, 14, 42))
    colors = {"within the cycle": INK, "after the cycle": ACCENT}
    x, means, variations = (np.concatenate(values) for values in zip(*cycles_in_sequence(cycles), strict=True))
    axes.fill_between(x, means * (1 - variations), means * (1 + variations), color=INK, alpha=0.08, linewidth=0)
    axes.plot(x, means, color=INK, linewidth=1.2)
    ends = np.cumsum([len(steps) for steps, _, _ in cycles.values()]) - 1
    markers: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": PAPER, "markeredgewidth": 1.2}
    axes.plot(x[ends], means[ends], color=ACCENT, linewidth=2, **markers)
    add_legend(axes, colors, 26)
    labeled = spaced_indices(np.arange(len(cycles)) * (width - 52) / len(cycles), 24)
    for i, cycle in enumerate(cycles):
        axes.axvline(i + 1, color=GRID, linewidth=1, zorder=0)
        if i in labeled:
            axes.annotate(
                cycle, (i + 0.5, 1), (0, 5), ("data", "axes fraction"), "offset points", ha="center", color=MUTED
            )
    axes.set(xlim=(0, len(cycles) + 0.1), xticks=[], ylim=(0, 1.06 * (means * (1 + variations)).max()))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(format_tick))
    return figure


def cycles_in_sequence(cycles: Mapping[str, NormCurve]) -> Iterator[NormCurve]:
    """The curves with steps from 0 to 1 in the first cycle, 1 to 2 in the second, and so on."""
    for place, (steps, means, variations) in enumerate(cycles.values()):
        yield place + steps / steps[-1], means, variations


@chart_style()
def bucket_losses(rankings: Sequence[RankingQuality], width: float = WIDE) -> Figure:
    """Mean true loss in buckets of descending score, a panel for each query cycle."""
    figure, panels = small_multiples(len(rankings), width)
    for axes, ranking in zip(panels, rankings, strict=True):
        bars = np.array(ranking.bucket_losses)
        axes.axvspan(0, ranking.queried_share * len(bars), color=WARM, alpha=0.25, linewidth=0)
        axes.bar(np.arange(len(bars)) + 0.5, bars, 0.82, color=ACCENT)
        axes.axhline(ranking.mean_loss, color=INK, linewidth=1, linestyle=DASHED)
        axes.set(xlim=(0, len(bars)), ylim=(0, bars.max() * 1.06 or 1), xticks=[])
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(FuncFormatter(format_tick))
        spearman = "n/a" if ranking.spearman is None else f"{ranking.spearman:.2f}"
        panel_titles(axes, ranking.cycle, f"Spearman {spearman}")
        axes.set_xlabel("high score  →  low score", size=8)
    return figure


@chart_style()
def capture_curves(rankings: Sequence[RankingQuality], width: float = WIDE) -> Figure:
    """Capture curves of the scores, a panel for each query cycle; the diagonal is chance, the upper edge the ideal."""
    figure, panels = small_multiples(len(rankings), width)
    for axes, ranking in zip(panels, rankings, strict=True):
        percent = np.arange(1, len(ranking.capture) + 1)
        axes.axvspan(0, 100 * ranking.queried_share, color=WARM, alpha=0.25, linewidth=0)
        axes.fill_between(percent, percent / 100, ranking.capture, color=ACCENT, alpha=0.12, linewidth=0)
        capture_axes(axes)
        axes.plot(percent, ranking.capture, color=ACCENT, linewidth=1.8)
        panel_titles(axes, ranking.cycle, f"gain {ranking.capture_gain:.2f}")
    return figure


@chart_style()
def tod_capture_curves(panels: dict[str, dict[int, list[float]]], width: float = WIDE) -> Figure:
    """Capture curves of TOD, {cycle: {steps: curve}}: a panel for each cycle, darker curves for more steps."""
    figure, axes_of_panels = small_multiples(len(panels), width)
    for axes, (cycle, curves) in zip(axes_of_panels, panels.items(), strict=True):
        capture_axes(axes)
        for place, (_, curve) in enumerate(sorted(curves.items())):
            axes.plot(np.arange(1, len(curve) + 1), curve, color=ACCENT, linewidth=1.6, alpha=(place + 1) / len(curves))
        panel_titles(axes, cycle, "T = " + ", ".join(map(str, sorted(curves))))
    return figure


def capture_axes(axes: Axes) -> None:
    axes.plot([0, 100], [0, 1], color=INK, linewidth=1, linestyle=DASHED)
    axes.axhline(1, color=MUTED, linewidth=1)
    axes.set(xlim=(0, 100), ylim=(0, 1.06), xticks=[])
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.set_xlabel("k: 0%  →  100%", size=8)


@chart_style()
def per_class_matrix(
    accuracies: np.ndarray, classes: Sequence[str], cycles: Sequence[str], metric: str = "accuracy"
) -> Figure:
    """Rows are classes, columns are cycles; the warmer a cell, the larger its share of errors.

    The row of a class without test images, whose values are nan, says so.
    """
    is_missing = np.isnan(accuracies.T)
    errors = np.where(is_missing, 0.0, 1 - accuracies.T)
    figure, axes = matrix_axes(classes, cycles, row_height=23 if len(classes) <= MAX_WRITTEN_CELLS else 7)
    axes.set_xlabel(f"{metric} in %, by cycle", labelpad=6)
    fill_cells(axes, np.where(errors > 0, 0.08 + 0.62 * errors / (errors.max() or 1.0), 0.0), WARM)
    write_cells(axes, np.where(is_missing, "", np.char.mod("%.0f", 100 * accuracies.T)))
    for row in np.flatnonzero(is_missing.all(axis=1)):
        center, size = (len(cycles) / 2, row + 0.5), min(8.0, 40 / len(classes) + 4)
        axes.text(*center, "no test images", ha="center", va="center_baseline", size=size, color=MUTED)
    return figure


@chart_style()
def confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """Rows are true classes, columns predicted ones; correct predictions in one color, errors in another.

    Counts that are too long for a cell, as those of pixels, are shown in % of their row.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    correct = np.diag(np.diag(shares))
    errors = shares - correct
    is_small = len(classes) <= MAX_WRITTEN_CELLS
    names = classes if is_small else [""] * len(classes)
    figure, axes = matrix_axes(names, names, row_height=23 if is_small else 290 / len(classes))
    axes.set_xlabel("predicted", labelpad=6)
    axes.set_ylabel("actual")
    fill_cells(axes, 0.5 * correct, ACCENT)
    fill_cells(axes, np.where(errors > 0, 0.2 + 0.5 * errors / (errors.max() or 1.0), 0.0), WARM)
    if counts.max() < MAX_WRITTEN_COUNT:
        write_cells(axes, np.where(counts > 0, counts.astype(str), ""))
    else:
        write_cells(axes, np.where(shares >= 0.005, np.char.mod("%.0f", 100 * shares), ""))
    return figure


def fill_cells(axes: Axes, opacities: np.ndarray, color: str) -> None:
    """Fill the cells of a matrix whose opacity is not 0."""
    cells = np.argwhere(opacities > 0)
    corners = cells[:, None, ::-1] + 0.5 + 0.47 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    colors = [to_rgba(color, opacities[row, column]) for row, column in cells]
    axes.add_collection(PolyCollection(list(corners), facecolors=colors, linewidths=0))


def write_cells(axes: Axes, texts: np.ndarray) -> None:
    """Write into the cells of a matrix, unless they are too small to be read."""
    if max(texts.shape) > MAX_WRITTEN_CELLS:
        return
    cell_width = axes.get_window_extent().width * 72 / axes.figure.dpi / texts.shape[1]
    size = min(8.0, 9 * cell_width / LETTER_WIDTH / max(map(len, texts.flat)))
    for (row, column), text in np.ndenumerate(texts):
        if text:
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center_baseline", size=size)
