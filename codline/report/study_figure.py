"""Writes a study's results.json, results.csv and figure: python -m codline.report.study_figure FOLDER [--draw]"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from codline.core.errors import exit_on_error
from codline.core.files import atomic_write, read_json, write_json, write_text
from codline.evaluation.study_statistics import metric_name, results_csv, summarize_study
from codline.report.chart_layout import (
    WIDE,
    Margins,
    add_panel,
    chart_style,
    new_figure,
    spaced_indices,
    to_png,
    to_svg,
    y_axis_title,
)

COLORS = ("#0a6ebd", "#dd6b20", "#2f855a", "#b83280", "#805ad5", "#8a6d00", "#17808c", "#5c6978")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))
LEGEND_ROW = 13  # points


@chart_style()
def study_chart(results: dict[str, Any]) -> Figure:
    """Mean learning curves with their intervals as bands; arms without a finished point are left out."""
    arms = [(i, arm) for i, arm in enumerate(results["arms"]) if arm["curve"]]
    legend = LEGEND_ROW * len(arms)
    figure = new_figure(WIDE, 330 + legend)
    axes = add_panel(figure, Margins(44, 50 + legend, 14, 44))
    axes.set_title(results["title"], loc="left", weight="bold", x=-0.05, pad=26)
    y_axis_title(axes, f"test {metric_name(results['points'])}: mean, and 95% t-interval over seeds")
    for i, arm in arms:
        labels, mean, half = (np.array([row[key] or 0.0 for row in arm["curve"]]) for key in ("labels", "mean", "half"))
        color, dashes = COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]
        low, high = np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)
        axes.fill_between(labels, low, high, color=color, alpha=0.13, linewidth=0)
        style: dict[str, Any] = {"color": color, "linestyle": dashes, "linewidth": 2, "marker": "o", "markersize": 4}
        axes.plot(labels, mean, label=f"{arm['arm']} (n = {arm['n']})", **style)
    axes.set_xlabel("labels")
    counts = np.array(sorted({row["labels"] for _, arm in arms for row in arm["curve"]}))
    ticks = counts[spaced_indices((counts - counts[0]) / max(np.ptp(counts), 1) * (WIDE - 90), 38)]
    axes.set_xticks(ticks, [f"{count:,}" for count in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))
    axes.legend(loc="upper left", bbox_to_anchor=(-0.05, 0), borderaxespad=3.2, frameon=False, labelspacing=0.2)
    return figure


def main(folder: Path, draw: bool) -> None:
    study = read_json(folder / "points.json")
    results = summarize_study(study)
    write_json(folder / "results.json", results)
    write_text(folder / "results.csv", results_csv(study))
    if draw and study["points"]:
        figure = study_chart(results)
        with atomic_write(folder / "figure.png") as part:
            part.write_bytes(to_png(figure))
        write_text(folder / "figure.svg", to_svg(figure))


if __name__ == "__main__":
    with exit_on_error():
        main(Path(sys.argv[1]), draw="--draw" in sys.argv)
