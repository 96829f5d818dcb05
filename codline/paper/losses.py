"""Figures about what COD measures: gradient norms, COD against the true loss, capture of the highest losses."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes

from codline.data import dataset_info, tables
from codline.data.labels import lookup_labels
from codline.data.output_store import open_output_store
from codline.evaluation.diagnosis import image_statistics
from codline.evaluation.rank_statistics import capture_curve
from codline.evaluation.study_statistics import Estimate
from codline.paper.campaigns import Campaign, Diagnosis, Request, estimates
from codline.paper.drawing import (
    Drawing,
    Style,
    Table,
    add_figure_legend,
    draw_estimates,
    format_estimate,
    limit_to_lines,
    panel_grid,
    panel_notes,
    say_missing,
    share_axis,
    title_panel,
)
from codline.report.chart_layout import ACCENT, INK, MUTED, WARM, chart_style
from codline.report.study_figure import COLORS

CHUNK = 512  # images whose outputs are read at once
BLUE, ORANGE = Style(ACCENT, "-"), Style(WARM, "-")
SAMPLED = np.arange(1, 101)  # % of the unlabelled images
SHOWN = (5, 10, 20, 40)  # of them, in tables


def per_cycle(campaigns: list[Campaign], value: Callable[[Diagnosis], float], first: int = 0) -> list[list[float]]:
    """A value of each query's diagnosis, one row per campaign; nan in the cycles before `first`."""
    return [
        [value(each.diagnosis(cycle)) if i >= first else float("nan") for i, cycle in enumerate(each.queries)]
        for each in campaigns
    ]


def query_shares(campaign: Campaign) -> list[float]:
    """Shares of labels in the cycles that have a query: all but the last."""
    return campaign.shares[: len(campaign.queries)]


@chart_style()
def gradient_norms(request: Request) -> Drawing:
    """Figure 1: the mean squared gradient norm of the outputs, within cycles (dark) and after each of them (blue)."""
    figure, axes = panel_grid(len(request.panels), columns=2, legend=2)
    styles = {"within cycles": Style(INK, "-"), "after each cycle": BLUE}
    rows = []
    for place, panel in zip(axes, request.panels, strict=True):
        title_panel(place, panel)
        campaigns = panel.of("TOD")
        if not campaigns:
            say_missing(place, panel)
            continue
        norms = [[each.diagnosis(cycle).gradient_norms for cycle in each.queries] for each in campaigns]
        steps = [i + step / cycle.steps[-1] for i, cycle in enumerate(norms[0]) for step in cycle.steps]
        within = estimates([[value for cycle in each for value in cycle.within] for each in norms])
        after = estimates([[cycle.after for cycle in each] for each in norms])
        draw_estimates(place, steps, within, styles["within cycles"], linewidth=1, marker="")
        draw_estimates(place, range(1, len(after) + 1), after, styles["after each cycle"])
        limit_to_lines(place)
        place.set_ylim(bottom=0)
        place.set(xlabel="cycle", ylabel="mean ‖∇f‖²", xticks=range(len(after) + 1))
        means, over_images = [value["mean"] for value in after], [cycle.variation for each in norms for cycle in each]
        cells = [f"{min(means):.4g}", f"{max(means):.4g}", f"{np.std(means) / np.mean(means):.2f}"]
        rows.append([panel.title, *cells, f"{np.mean(over_images):.2f}"])
    add_figure_legend(figure, {name: name for name in styles}, styles)
    columns = ["dataset", "smallest mean", "largest mean", "variation over cycles", "variation over images"]
    notes = [
        "Variation: deviation divided by the mean. The paper claims that both are small, and prints no numbers. Within "
        "a cycle, the norm is measured at its snapshots."
    ]
    return Drawing(figure, Table(columns, rows), notes + panel_notes(request.panels))


@chart_style()
def cod_and_loss(request: Request) -> Drawing:
    """Figure 3, 2 x 2: the mean COD (top) and the mean true loss (bottom) of the unlabelled images."""
    count = len(request.panels)
    figure, axes = panel_grid(2 * count, columns=count)
    for column, panel in enumerate(request.panels):
        campaigns = panel.of("Ours-Task")
        for place, name in ((axes[column], "mean COD"), (axes[count + column], "mean true loss")):
            title_panel(place, panel)
            if not campaigns:
                say_missing(place, panel)
                continue
            is_cod = name == "mean COD"
            values = per_cycle(campaigns, cod if is_cod else true_loss, first=int(is_cod))
            draw_estimates(place, query_shares(campaigns[0]), estimates(values), BLUE if is_cod else ORANGE)
            limit_to_lines(place)
            place.set_ylabel(name)
            share_axis(place)
    rows = [
        [panel.title, format_estimate(correlation(campaigns), 2)]
        for panel in request.panels
        if (campaigns := panel.of("Ours-Task"))
    ]
    note = "The first cycle has no COD: there is no model of a previous cycle."
    return Drawing(
        figure, Table(["dataset", "correlation of the two over cycles"], rows), [note, *panel_notes(request.panels)]
    )


def cod(diagnosis: Diagnosis) -> float:
    return diagnosis.mean_discrepancy


def true_loss(diagnosis: Diagnosis) -> float:
    return diagnosis.mean_loss


def correlation(campaigns: list[Campaign]) -> Estimate | None:
    """Pearson's correlation of mean COD and mean loss over the cycles of a campaign, over seeds."""
    pairs = zip(per_cycle(campaigns, cod, first=1), per_cycle(campaigns, true_loss), strict=True)
    values = [[float(np.corrcoef(a[1:], b[1:])[0, 1])] for a, b in pairs if len(a) > 2]
    return estimates(values)[0] if values else None


@chart_style()
def loss_by_cod(request: Request) -> Drawing:
    """Figure 5: the mean true loss of twentieths of the unlabelled images by descending COD, a line per cycle."""
    count = max((len(c.queries) for panel in request.panels for c in panel.of("Ours-Task")), default=0)
    styles = {f"cycle {i + 1}": Style(COLORS[i % len(COLORS)], "-") for i in range(count)}
    figure, axes = panel_grid(len(request.panels), columns=2, legend=count, height=260)
    for place, panel in zip(axes, request.panels, strict=True):
        title_panel(place, panel)
        campaigns = panel.of("Ours-Task")
        if not campaigns:
            say_missing(place, panel)
            continue
        for i, cycle in enumerate(campaigns[0].queries):
            losses = estimates([campaign.diagnosis(cycle).bucket_losses for campaign in campaigns])
            draw_estimates(place, range(len(losses)), losses, styles[f"cycle {i + 1}"])
        width = 100 / len(losses)
        names = [f"{i * width:.3g}-{(i + 1) * width:.3g}%" for i in range(len(losses))]
        place.set_xticks(range(0, len(names), 3), names[::3], rotation=30, size=7.5)
        limit_to_lines(place)
        place.set_ylabel("mean true loss")
        place.set_xlabel("unlabelled images by descending COD")
    add_figure_legend(figure, {name: name for name in styles}, styles)
    note = "In the first cycle, images are in the order of the first-cycle rule: there is no previous cycle's model."
    return Drawing(figure, None, [note, *panel_notes(request.panels)])


@chart_style()
def capture(request: Request) -> Drawing:
    """Figure 6: the share of the highest losses that are found, by COD and by LL4AL, on the same models."""
    figure, axes = panel_grid(len(request.panels), columns=2, legend=2)
    styles = {"COD": BLUE, "LL4AL": ORANGE}
    rows = []
    for place, panel in zip(axes, request.panels, strict=True):
        title_panel(place, panel)
        campaigns = [campaign for campaign in panel.of("LL4AL") if len(campaign.queries) > 1]
        if not campaigns:
            say_missing(place, panel)
            continue
        curves = {
            "COD": [np.mean([cod_capture(c, i) for i in range(1, len(c.queries))], axis=0) for c in campaigns],
            "LL4AL": [np.mean([c.diagnosis(cycle).capture for cycle in c.queries[1:]], axis=0) for c in campaigns],
        }
        draw_captures(place, {name: estimates([list(row) for row in each]) for name, each in curves.items()}, styles)
        for percent in SHOWN:
            cells = [estimates([[float(row[percent - 1])] for row in each])[0] for each in curves.values()]
            rows.append([panel.title, f"{percent}%", *map(format_estimate, cells)])
    add_figure_legend(figure, {name: name for name in styles}, styles)
    notes = [
        "Both score the same models: those of campaigns with LL4AL, which have the loss predictor. Mean over all "
        "cycles but the first, which has no COD. The dashed line is chance."
    ]
    table = Table(["dataset", "sampled", "COD finds (%)", "LL4AL finds (%)"], rows)
    return Drawing(figure, table, notes + panel_notes(request.panels))


def draw_captures(axes: Axes, curves: dict[str, list[Estimate]], styles: dict[str, Style]) -> None:
    axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle=(0, (3, 2)))
    for name, values in curves.items():
        draw_estimates(axes, SAMPLED.tolist(), values, styles[name], marker="")
    axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="sampled images (%)", ylabel="of the highest losses (%)")
    axes.axhline(100, color=MUTED, linewidth=0.6)


def cod_capture(campaign: Campaign, index: int) -> np.ndarray:
    """The capture curve of COD in a query cycle, in %, whatever strategy selected its query."""
    pipeline, cycle = campaign.pipeline, campaign.queries[index]
    info = dataset_info.read_dataset_info(pipeline.path("score", "dataset"))
    ids = tables.read_table(pipeline.path("score", "scores", cycle), tables.SCORES)["id"].to_numpy()
    labels = lookup_labels(ids, pipeline.path("diagnose", "oracle", cycle), tables.ORACLE, len(info.classes))
    outputs, previous = (
        open_output_store(pipeline.path("diagnose", name, cycle), info.output_shape)
        for name in ("outputs", "previous_outputs")
    )
    statistics = image_statistics(
        ids, labels, outputs, previous, np.zeros(len(ids)), classes=len(info.classes), chunk_size=CHUNK
    )
    known = np.isfinite(statistics.discrepancies)
    return 100 * capture_curve(statistics.discrepancies[known], statistics.losses[known], ids[known])


@chart_style()
def tod_steps(request: Request) -> Drawing:
    """Figure 14: capture of the highest losses by TOD over different numbers of steps before the end of a cycle."""
    steps = sorted({t for panel in request.panels for c in panel.of("TOD") for t in tod_of(c)})
    names = {t: f"{t} step{'s' if t > 1 else ''}" for t in steps}
    styles = {names[t]: Style(COLORS[i % len(COLORS)], "-") for i, t in enumerate(steps)}
    figure, axes = panel_grid(len(request.panels), columns=2, legend=len(steps))
    rows = []
    for place, panel in zip(axes, request.panels, strict=True):
        title_panel(place, panel)
        campaigns = panel.of("TOD")
        if not campaigns:
            say_missing(place, panel)
            continue
        curves = {names[t]: [list(tod_of(campaign)[t]) for campaign in campaigns] for t in steps}
        draw_captures(place, {name: estimates(each) for name, each in curves.items()}, styles)
        for name, each in curves.items():
            found = [estimates([[row[percent - 1]] for row in each])[0] for percent in SHOWN]
            rows.append([panel.title, name, *map(format_estimate, found)])
    add_figure_legend(figure, {name: name for name in styles}, styles)
    columns = ["dataset", "TOD over", *(f"{percent}% sampled" for percent in SHOWN)]
    note = "Mean over all cycles that have a query. The dashed line is chance."
    return Drawing(figure, Table(columns, rows), [note, *panel_notes(request.panels)])


def tod_of(campaign: Campaign) -> dict[int, np.ndarray]:
    """{steps: capture curve, mean over cycles}"""
    captures = [campaign.diagnosis(cycle).tod_captures for cycle in campaign.queries]
    return {steps: np.mean([each[steps] for each in captures], axis=0) for steps in captures[0]}
