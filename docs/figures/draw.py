"""Draw digits.png from digits.json: python docs/figures/draw.py"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from codline.report import charts

HERE = Path(__file__).parent
COLOURS = {
    "cod": charts.ACCENT,
    "random": charts.INK,
    "entropy": charts.WARM,
    "margin": "#2c8a62",
    "least_confidence": "#8757b8",
}


def accuracies(data: dict[str, Any], strategy: str) -> np.ndarray:
    """In per cent: a row for each seed, a column for each cycle."""
    runs = sorted((run["seed"], run["correct"]) for run in data["runs"] if run["strategy"] == strategy)
    percent: np.ndarray = 100 / data["test"] * np.array([correct for _, correct in runs])
    return percent


@charts.house_style()
def figure(data: dict[str, Any]) -> Figure:
    labels = data["labels"]
    page = charts.blank(charts.WIDE, 310)
    axes = charts.panel(page, charts.Margins(44, 50, 12, 28))
    axes.set(xlim=(labels[0] - 16, labels[-1] + 16), ylim=(91, 100))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}%"))
    axes.set_xticks(labels, [f"{n}\n{charts.share(n / data['pool'])}" for n in labels])
    axes.set_xlabel("labels, and their share of the pool")
    seeds = len(accuracies(data, "cod"))
    charts.heading(
        axes,
        f"test accuracy on {data['dataset']}: mean and standard deviation over {seeds} seeds, {data['test']} test images",
    )
    for strategy in reversed(COLOURS):  # cod on top
        curve(axes, labels, accuracies(data, strategy), strategy)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="lower right", frameon=False, fontsize=10, labelcolor="linecolor")
    return page


def curve(axes: Axes, labels: list[int], accuracies_SN: np.ndarray, strategy: str) -> None:
    """S seeds, N cycles. What the figure is about is drawn strongly: cod, and random, which it has to beat."""
    mean, deviation = accuracies_SN.mean(0), accuracies_SN.std(0, ddof=1)
    strong, colour = strategy in ("cod", "random"), COLOURS[strategy]
    axes.fill_between(
        labels,
        mean - deviation,
        np.minimum(mean + deviation, 100),
        color=colour,
        alpha=0.12 if strong else 0.07,
        linewidth=0,
    )
    style = {"linewidth": 2.4, "marker": "o", "markersize": 6} if strong else {"linewidth": 1.3}
    axes.plot(labels, mean, color=colour, markeredgecolor=charts.PAPER, label=strategy.replace("_", " "), **style)


if __name__ == "__main__":
    (HERE / "digits.png").write_bytes(
        charts.png(figure(json.loads((HERE / "digits.json").read_text(encoding="utf-8"))))
    )
