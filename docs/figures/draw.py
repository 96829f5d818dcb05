"""Draw digits.png from digits.json: python docs/figures/draw.py"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from codline.report import chart_layout as layout

HERE = Path(__file__).parent
COLORS = {
    "cod": layout.ACCENT,
    "random": layout.INK,
    "entropy": layout.WARM,
    "margin": "#2c8a62",
    "least_confidence": "#8757b8",
}


def accuracies(data: dict[str, Any], strategy: str) -> np.ndarray:
    """Test accuracies in percent: a row per seed, a column per cycle."""
    runs = sorted((run["seed"], run["correct"]) for run in data["runs"] if run["strategy"] == strategy)
    percent: np.ndarray = 100 / data["test"] * np.array([correct for _, correct in runs])
    return percent


@layout.chart_style()
def draw_figure(data: dict[str, Any]) -> Figure:
    labels = data["labels"]
    figure = layout.new_figure(layout.WIDE, 310)
    axes = layout.add_panel(figure, layout.Margins(44, 50, 12, 28))
    axes.set(xlim=(labels[0] - 16, labels[-1] + 16), ylim=(91, 100))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}%"))
    axes.set_xticks(labels, [f"{n}\n{layout.format_share(n / data['pool'])}" for n in labels])
    axes.set_xlabel("labels (share of the pool)")
    seeds = f"mean and standard deviation over {len(accuracies(data, 'cod'))} seeds"
    layout.y_axis_title(axes, f"test accuracy on {data['dataset']}: {seeds}, {data['test']} test images")
    for strategy in reversed(COLORS):  # cod is drawn last, on top
        plot_strategy(axes, labels, accuracies(data, strategy), strategy)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="lower right", frameon=False, fontsize=10, labelcolor="linecolor")
    return figure


def plot_strategy(axes: Axes, labels: list[int], accuracies_SN: np.ndarray, strategy: str) -> None:
    """S seeds, N cycles. cod and its baseline random are emphasized."""
    mean, deviation = accuracies_SN.mean(0), accuracies_SN.std(0, ddof=1)
    is_emphasized, color = strategy in ("cod", "random"), COLORS[strategy]
    band = (mean - deviation, np.minimum(mean + deviation, 100))
    axes.fill_between(labels, *band, color=color, alpha=0.12 if is_emphasized else 0.07, linewidth=0)
    style = {"linewidth": 2.4, "marker": "o", "markersize": 6} if is_emphasized else {"linewidth": 1.3}
    axes.plot(labels, mean, color=color, markeredgecolor=layout.PAPER, label=strategy.replace("_", " "), **style)


if __name__ == "__main__":
    data = json.loads((HERE / "digits.json").read_text(encoding="utf-8"))
    (HERE / "digits.png").write_bytes(layout.to_png(draw_figure(data)))
