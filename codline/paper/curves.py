"""Figures and tables of learning curves: methods against each other, ablations, hyper-parameters."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from codline.evaluation.study_statistics import Estimate
from codline.paper import published
from codline.paper.campaigns import PanelCampaigns, Request, mean_curve
from codline.paper.drawing import (
    Drawing,
    Style,
    Table,
    add_figure_legend,
    arm_styles,
    draw_estimates,
    format_estimate,
    format_published,
    limit_to_lines,
    panel_grid,
    panel_notes,
    say_missing,
    share_axis,
    title_panel,
)
from codline.paper.items import ALPHAS, LAMBDAS, OURS, PAIRED, PAIRED_WITH_LOSS, RIVALS
from codline.report.chart_layout import INK, MUTED, PAPER, chart_style

Labels = dict[str, str]  # {arm: its name in a figure}
FULL = "Full Training"
MAX_BANDS = 5  # of more curves, only ours have bands; the table has all intervals


def by_name(arms: Sequence[str]) -> Labels:
    return {arm: arm for arm in arms}


def classification(request: Request) -> Drawing:
    """Figure 7: the learning curves of all methods on four datasets; full training is a line."""
    return curve_drawing(request, by_name((*OURS, *RIVALS, "Random")), columns=2)


def segmentation(request: Request) -> Drawing:
    """Figure 8."""
    arms = (*OURS, "VAAL", "QBC", "Core-set", "MC-Dropout", "Random")
    note = "Without SRAAL, which the paper has: its score is not defined for pixels, and no code of it was released."
    return curve_drawing(request, by_name(arms), columns=1, note=note)


def sampling(request: Request) -> Drawing:
    """Figure 9: the sampling alone is varied; all but the full pipeline train with the task loss alone."""
    labels = {
        "Ours-Semi": "Full pipeline",
        "Ours-Task": "CyclicOD sampling",
        "EMAOD": "EMAOD sampling",
        "LL4AL": "LL4AL sampling",
        "Random": "Random sampling",
    }
    note = "All but the full pipeline are trained without the unsupervised loss; LL4AL with its own."
    return curve_drawing(request, labels, columns=2, note=note)


def objectives(request: Request) -> Drawing:
    """Figure 10: the loss alone is varied; all but the full pipeline sample at random."""
    labels = {
        "Ours-Semi": "Full pipeline",
        "Random + L_U": "EMAOD loss",
        "CyclicOD loss": "CyclicOD loss",
        "LL4AL loss": "LL4AL loss",
        "Random": "Task loss",
    }
    note = "The paper does not say how images were sampled here: all but the full pipeline sample at random."
    return curve_drawing(request, labels, columns=2, note=note)


@chart_style()
def strategies(request: Request) -> Drawing:
    """Figure 13: without the unsupervised loss (top) and with it (bottom), a column for each dataset."""
    rows = (dict(zip(PAIRED, PAIRED, strict=True)), dict(zip(PAIRED_WITH_LOSS, PAIRED, strict=True)))
    figure, axes = panel_grid(2 * len(request.panels), columns=len(request.panels), legend=len(PAIRED))
    styles = arm_styles(PAIRED)
    for row, labels in enumerate(rows):
        arms = {arm: styles[name] for arm, name in labels.items()}
        for column, panel in enumerate(request.panels):
            place = axes[row * len(request.panels) + column]
            draw_curves(place, panel, arms, ("without L_U", "with L_U")[row])
    add_figure_legend(figure, by_name(PAIRED) | {"Ours-Task": "COD (ours)"}, styles)
    names = by_name((*PAIRED, *PAIRED_WITH_LOSS)) | {"Ours-Task": "COD", "Ours-Semi": "COD + L_U"}
    note = "The paper names neither the three datasets nor the methods of this figure in its text."
    return Drawing(figure, summary_table(request.panels, names), [note, *panel_notes(request.panels)])


@chart_style()
def curve_drawing(request: Request, labels: Labels, columns: int, note: str = "") -> Drawing:
    """Learning curves, a panel for each dataset, and a table of their last points next to the published numbers."""
    styles, panels = arm_styles(list(labels)), request.panels
    figure, axes = panel_grid(len(panels), min(columns, len(panels)), legend=len(labels), height=250)
    for place, panel in zip(axes, panels, strict=True):
        draw_curves(place, panel, styles)
        if request.scale == "paper":
            draw_published(place, panel.dataset, styles)
        draw_full_training(place, panel)
    add_figure_legend(figure, labels, styles)
    has_full = any(panel.of(FULL) for panel in panels)
    table = summary_table(panels, labels | ({FULL: FULL} if has_full else {}))
    return Drawing(figure, table, [*filter(None, [note]), *panel_notes(panels)])


def draw_curves(axes: Axes, panel: PanelCampaigns, styles: dict[str, Style], right: str = "") -> None:
    title_panel(axes, panel, right)
    arms = [arm for arm in styles if panel.of(arm)]
    if not arms:
        say_missing(axes, panel)
        return
    for arm in reversed(arms):  # ours on top
        has_band = len(arms) <= MAX_BANDS or arm in OURS
        draw_estimates(axes, *mean_curve(panel.of(arm)), styles[arm], band=has_band)
    limit_to_lines(axes)
    axes.set_ylabel("mean IoU (%)" if panel.dataset == "cityscapes" else "accuracy (%)")
    share_axis(axes)


def draw_published(axes: Axes, dataset: str, styles: dict[str, Style]) -> None:
    """Hollow points for the published numbers with 40% of the labels, where the protocol is the same."""
    for arm, style in styles.items():
        value = published.forty_percent(dataset, arm)
        if value is not None and dataset != "cityscapes":
            axes.plot([40], [value], "o", markersize=7, markerfacecolor=PAPER, markeredgecolor=style.color, zorder=1)


def draw_full_training(axes: Axes, panel: PanelCampaigns) -> None:
    if campaigns := panel.of(FULL):
        mean = float(np.mean([campaign.values[-1] for campaign in campaigns]))
        axes.axhline(mean, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.annotate(
            f"Full Training {mean:.1f}", (0, mean), (4, 3), ("axes fraction", "data"), "offset points", size=8
        )


def summary_table(panels: Sequence[PanelCampaigns], labels: Labels) -> Table:
    """The last point of each curve, next to the number that the paper prints."""
    shown = [panel for panel in panels if panel.campaigns]
    columns, cells = ["method"], [[label] for label in labels.values()]
    for panel in shown:
        numbers = [published.forty_percent(panel.dataset, arm) for arm in labels]
        curves = [curve for arm in labels if arm != FULL and (curve := panel.of(arm))]
        share = f"{curves[0][0].shares[-1]:.0f}%" if curves else "100%"
        columns.append(f"{panel.title}, {share} labelled")
        if any(number is not None for number in numbers):
            columns.append("paper, 40%")
        for row, arm, number in zip(cells, labels, numbers, strict=True):
            row.append(format_estimate(last_value(panel, arm)))
            if any(each is not None for each in numbers):
                row.append(format_published(number))
    return Table(columns, cells)


def last_value(panel: PanelCampaigns, arm: str) -> Estimate | None:
    campaigns = panel.of(arm)
    return mean_curve(campaigns)[1][-1] if campaigns else None


def forty_percent(request: Request) -> Drawing:
    """Table 1: a row for each dataset, ours and the paper's, with the gain over Base as the paper prints it."""
    columns = {
        "Core-set": "Core-set",
        "LL4AL": "LL4AL",
        "VAAL": "VAAL",
        "SRAAL": "SRAAL",
        "Random": "Base",
        "Random + L_U": "Base+Semi",
        "Ours-Task": "Base+Active",
        "Ours-Semi": "Base+Semi+Active",
    }
    rows = []
    for panel in request.panels:
        estimates = {arm: last_value(panel, arm) for arm in columns}
        means = {arm: value["mean"] if value else None for arm, value in estimates.items()}
        ours = {arm: format_estimate(value) for arm, value in estimates.items()}
        numbers = {arm: published.forty_percent(panel.dataset, arm) for arm in columns}
        theirs = {arm: format_published(value) for arm, value in numbers.items()}
        rows.append([f"{panel.title}, here", *with_gains(ours, means)])
        rows.append([f"{panel.title}, paper", *with_gains(theirs, numbers)])
    shares = {f"{panel.campaigns[0].shares[-1]:.0f}%" for panel in request.panels if panel.campaigns}
    note = f"The last cycle has {' and '.join(sorted(shares))} of the labels, the paper's 40%." if shares else ""
    table = Table(["dataset", *columns.values()], rows)
    return Drawing(None, table, [*filter(None, [note]), *panel_notes(request.panels)])


def with_gains(texts: dict[str, str], values: dict[str, float | None]) -> list[str]:
    """With the difference from Base, for the arms that the paper gives it for."""
    base = values["Random"]
    gains = {
        arm: f" ({value - base:+.1f})"
        for arm, value in values.items()
        if arm in ("Random + L_U", "Ours-Task", "Ours-Semi") and value is not None and base is not None
    }
    return [text + gains.get(arm, "") for arm, text in texts.items()]


@chart_style()
def hyper_parameters(request: Request) -> Drawing:
    """Figure 12: accuracy against the weight (top) and the decay (bottom), a column for each share of labels."""
    (panel,) = request.panels
    rows = {
        "lambda": {arm: float(arm.removeprefix("lambda ")) if arm != "Ours-Semi" else 0.05 for arm in LAMBDAS},
        "alpha": {arm: float(arm.removeprefix("alpha ")) if arm != "Ours-Semi" else 0.999 for arm in ALPHAS},
    }
    cycles = cycles_to_show(panel)
    figure, axes = panel_grid(2 * len(cycles) or 2, columns=len(cycles) or 2, height=180)
    table_rows = []
    for row, (symbol, arms) in enumerate(rows.items()):
        values = {arm: mean_curve(panel.of(arm))[1] for arm in arms if panel.of(arm)}
        for column, (cycle, share) in enumerate(cycles.items()):
            draw_setting(axes[row * len(cycles) + column], symbol, arms, {arm: v[cycle] for arm, v in values.items()})
            axes[row * len(cycles) + column].set_title(f"{share:.0f}% labelled", loc="left", weight="bold")
        table_rows += [
            [f"{symbol} = {arms[arm]:g}", *(format_estimate(curve[cycle]) for cycle in cycles)]
            for arm, curve in values.items()
        ]
    if not cycles:
        for place in axes:
            say_missing(place, panel)
    table = Table(["setting", *(f"{share:.0f}% labelled" for share in cycles.values())], table_rows)
    note = (
        "The paper names lambda = 0.05 and alpha = 0.999 as the best; the other values on its axes are not in its text."
    )
    scaled = "At this scale, alpha stands for the share of a cycle's steps that it spans in the paper."
    notes = [note] if request.scale == "paper" else [note, scaled]
    return Drawing(figure, table, notes + panel_notes(request.panels))


def cycles_to_show(panel: PanelCampaigns) -> dict[int, float]:
    """{index of a cycle: share of labels in %}: 10, 20, 30 and 40%, or what there is of them."""
    if not panel.campaigns:
        return {}
    shares = panel.campaigns[0].shares
    return {index: share for index, share in enumerate(shares) if index % 2 == 0}


def draw_setting(axes: Axes, symbol: str, arms: dict[str, float], values: dict[str, Estimate]) -> None:
    """Positions are equally spaced, as the settings are on a logarithmic scale or close to 1."""
    names = list(arms)
    places = [names.index(arm) for arm in values]
    style = arm_styles(["Ours-Semi"])["Ours-Semi"]
    draw_estimates(axes, places, list(values.values()), style)
    axes.set_xticks(range(len(names)), [f"{value:g}" for value in arms.values()], size=8)
    axes.axvline(names.index("Ours-Semi"), color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    limit_to_lines(axes)
    axes.set_xlabel(symbol)
    axes.set_ylabel("accuracy (%)")
    axes.tick_params(axis="y", labelsize=8)
