"""Writes a study's results.json, results.csv and figure: python -m codline.report.study_figure FOLDER [--draw]"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from codline.core.errors import CodlineError
from codline.core.files import read_json, whole, write_json, write_text
from codline.evaluation.study_statistics import measure, rows, summary
from codline.report import charts

COLOURS = ("#0a6ebd", "#dd6b20", "#2f855a", "#b83280", "#805ad5", "#8a6d00", "#17808c", "#5c6978")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))
ROW = 13  # points that a line of the legend is high


@charts.house_style()
def figure(results: dict[str, Any]) -> Figure:
    """Mean curves with their intervals as bands; arms without a finished point are left out."""
    arms = [(i, arm) for i, arm in enumerate(results["arms"]) if arm["curve"]]
    legend = ROW * len(arms)
    drawn = charts.blank(charts.WIDE, 330 + legend)
    axes = charts.panel(drawn, charts.Margins(44, 50 + legend, 14, 44))
    axes.set_title(results["title"], loc="left", weight="bold", x=-0.05, pad=26)
    charts.heading(axes, f"test {measure(results['points'])}: mean, and 95% t-interval over seeds")
    for i, arm in arms:
        labels, mean, half = (np.array([row[key] or 0.0 for row in arm["curve"]]) for key in ("labels", "mean", "half"))
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(
            labels, np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0), color=colour, alpha=0.13, linewidth=0
        )
        style = DASHES[i // len(COLOURS) % len(DASHES)]
        axes.plot(
            labels,
            mean,
            color=colour,
            linestyle=style,
            linewidth=2,
            marker="o",
            markersize=4,
            label=f"{arm['arm']} (n = {arm['n']})",
        )
    axes.set_xlabel("labels")
    counts = np.array(sorted({row["labels"] for _, arm in arms for row in arm["curve"]}))
    shown = charts.spaced((counts - counts[0]) / max(np.ptp(counts), 1) * (charts.WIDE - 90), 38)
    axes.set_xticks(counts[shown], [f"{count:,}" for count in counts[shown]])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))
    axes.legend(loc="upper left", bbox_to_anchor=(-0.05, 0), borderaxespad=3.2, frameon=False, labelspacing=0.2)
    return drawn


def draw(folder: Path, results: dict[str, Any]) -> None:
    picture = figure(results)
    with whole(folder / "figure.png") as part:
        part.write_bytes(charts.png(picture))
    write_text(folder / "figure.svg", charts.svg(picture))


def main(folder: Path, drawing: bool) -> None:
    study = read_json(folder / "points.json")
    results = summary(study)
    write_json(folder / "results.json", results)
    write_text(folder / "results.csv", rows(study))
    if drawing and study["points"]:
        draw(folder, results)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), drawing="--draw" in sys.argv)
    except CodlineError as error:
        sys.stderr.write(f"codline: {error}\n")
        sys.exit(error.exit_code)
