"""Results of single classes: IoU on Cityscapes, accuracy on CIFAR-10."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from codline.evaluation.study_statistics import Estimate, estimate
from codline.paper import published
from codline.paper.campaigns import Campaign, Request, estimates, mean_curve
from codline.paper.drawing import (
    NOTHING,
    Drawing,
    Style,
    Table,
    add_figure_legend,
    draw_estimates,
    format_estimate,
    format_published,
    limit_to_lines,
    panel_grid,
    panel_notes,
    say_missing,
    title_panel,
)
from codline.report.chart_layout import chart_style
from codline.report.study_figure import COLORS, DASHES

ROWS = {"Random": "T", "Random + L_U": "T + U"}


def class_iou(request: Request) -> Drawing:
    """Table 2: the IoU of each class in the last cycle, with the share of its pixels."""
    (panel,) = request.panels
    if not panel.campaigns:
        return Drawing(None, Table(["class"], []), panel_notes(request.panels))
    campaign = panel.campaigns[0]
    shares = campaign.details(last_cycle(campaign))["pixel_share"]
    classes = list(shares)
    rows = [["proportion (%)", *(f"{100 * shares[name]:.1f}" for name in classes), NOTHING]]
    for arm, label in ROWS.items():
        if campaigns := panel.of(arm):
            cells = [format_estimate(class_estimate(campaigns, name), 0) for name in classes]
            rows.append([f"{label} (IoU, %)", *cells, format_estimate(mean_curve(campaigns)[1][-1])])
    is_cityscapes = not panel.is_stand_in
    numbers = published.numbers()["class_iou"]
    if is_cityscapes:
        rows.append(["proportion (%), paper", *map(format_published, numbers["proportion"]), NOTHING])
    for arm, label in ROWS.items():
        cells = [format_published(value, 0) for value in numbers[arm]] if is_cityscapes else [NOTHING] * len(classes)
        where = "paper" if is_cityscapes else "paper, Cityscapes"
        rows.append([f"{label} (IoU, %), {where}", *cells, format_published(numbers["mean"][arm])])
    share = f"{campaign.shares[-1]:.0f}%"
    notes = [
        f"With {share} of the labels, sampled at random: the paper calls it standard task model training. T: task loss "
        "alone. T + U: with the unsupervised loss.",
        *panel_notes(request.panels),
    ]
    return Drawing(None, Table(["class", *classes, "mean"], rows), notes)


def last_cycle(campaign: Campaign) -> str:
    return str(campaign.curve[-1]["cycle"])


def class_estimate(campaigns: list[Campaign], name: str) -> Estimate | None:
    """A class without test images has no IoU."""
    values = [each.details(last_cycle(each))["per_class_iou"][name] for each in campaigns]
    known = [100 * value for value in values if value is not None]
    return estimate(known) if known else None


@chart_style()
def per_class(request: Request) -> Drawing:
    """Figure 11: the accuracy of each class over the cycles, a line per class."""
    (panel,) = request.panels
    campaigns = panel.of("Ours-Semi")
    names = list(campaigns[0].details(last_cycle(campaigns[0]))["per_class_accuracy"]) if campaigns else []
    free = [(color, dashes) for dashes in DASHES for color in COLORS]
    styles = {name: Style(*look) for name, look in zip(names, free, strict=False)}
    figure, (axes,) = panel_grid(1, columns=1, legend=len(styles), height=300)
    title_panel(axes, panel)
    if not campaigns:
        say_missing(axes, panel)
        return Drawing(figure, None, panel_notes(request.panels))
    rows = []
    for name, style in styles.items():
        values = estimates([accuracies(campaign, name) for campaign in campaigns])
        draw_estimates(axes, range(1, len(values) + 1), values, style)
        rows.append([name, *map(format_estimate, values)])
    limit_to_lines(axes)
    axes.set(xlabel="cycle", ylabel="accuracy (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_figure_legend(figure, {name: name for name in styles}, styles)
    table = Table(["class", *(f"cycle {i + 1}" for i in range(len(campaigns[0].curve)))], rows)
    return Drawing(figure, table, panel_notes(request.panels))


def accuracies(campaign: Campaign, name: str) -> list[float]:
    values = [campaign.details(row["cycle"])["per_class_accuracy"][name] for row in campaign.curve]
    return [np.nan if value is None else 100 * value for value in values]
