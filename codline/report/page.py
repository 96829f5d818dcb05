"""The report's page: a single HTML file without external resources."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from codline.report import charts, gallery
from codline.report.chart_layout import PALETTE, WIDE, format_share
from codline.report.results import CampaignResult, CycleResult, Diagnostics, format_number


def html_environment(folder: Path) -> Environment:
    """Of the templates in a folder. An undefined name is an error."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = format_code
    return environment


def draw_charts(campaign: CampaignResult, width: float = WIDE) -> dict[str, Figure]:
    """All charts that the campaign has data for; the matrices, which fit a phone anyway, only for the wide page."""
    cycles, diagnosed = campaign.cycles, campaign.diagnosed
    labels, primary = [cycle.metrics.labels for cycle in cycles], [cycle.metrics.primary for cycle in cycles]
    # Only some objectives have an unsupervised loss; for the others it is 0 throughout.
    nonzero = {name for cycle in cycles for name, values in cycle.losses.items() if (values > 0).any()} | {"task loss"}
    losses = {c.name: {name: values for name, values in c.losses.items() if name in nonzero} for c in cycles}
    figures = {
        "learning_curve": charts.learning_curve(labels, primary, campaign.pool, width),
        "training": charts.training_losses(losses, width),
    }
    if diagnosed:
        figures["query_loss"] = loss_of_query(campaign, width)
        figures["trends"] = discrepancy_and_loss(campaign, width)
    if rankings := [each for both in diagnosed if (each := ranking_quality(*both, campaign.pool))]:
        figures["buckets"] = charts.bucket_losses(rankings, width)
        figures["capture"] = charts.capture_curves(rankings, width)
    if norms := {c.name: d.squared_gradient_norm.within_cycle for c, d in diagnosed if d.squared_gradient_norm}:
        figures["gradients"] = charts.gradient_norms({name: norm.arrays for name, norm in norms.items()}, width)
    if tod := {
        cycle.name: {steps: curve.capture for steps, curve in diagnostics.tod.items()}
        for cycle, diagnostics in diagnosed
        if diagnostics.tod
    }:
        figures["tod"] = charts.tod_capture_curves(tod, width)
    if width == WIDE:
        by_class = np.array([list(cycle.details.per_class.values()) for cycle in cycles], np.float64)  # None: nan
        metric = "IoU" if cycles[0].details.per_class_iou else "accuracy"
        figures["per_class"] = charts.per_class_matrix(by_class, campaign.classes, [c.name for c in cycles], metric)
        figures["confusion"] = charts.confusion_matrix(campaign.confusion, campaign.classes)
    return figures


def ranking_quality(cycle: CycleResult, diagnostics: Diagnostics, pool: int) -> charts.RankingQuality | None:
    """None for a strategy that does not rank the pool."""
    losses, capture, gain = diagnostics.bucket_losses, diagnostics.capture, diagnostics.capture_gain
    if cycle.query is None or losses is None or capture is None or gain is None:
        return None
    return charts.RankingQuality(
        cycle=cycle.name,
        bucket_losses=losses,
        mean_loss=diagnostics.mean_loss,
        queried_share=len(cycle.query.ids) / (pool - cycle.metrics.labels),
        spearman=diagnostics.spearman,
        capture=capture,
        capture_gain=gain,
    )


def loss_of_query(campaign: CampaignResult, width: float) -> Figure:
    diagnosed = campaign.diagnosed
    curves: dict[str, Sequence[float | None]] = {
        "query": [values.mean_loss_of_query for _, values in diagnosed],
        "all unlabelled": [values.mean_loss for _, values in diagnosed],
    }
    return charts.trends([cycle.metrics.labels for cycle, _ in diagnosed], curves, width)


def discrepancy_and_loss(campaign: CampaignResult, width: float) -> Figure:
    """The first cycle has no COD: its discrepancy is to an untrained model."""
    diagnosed, first = campaign.diagnosed, campaign.planned[0]
    curves: dict[str, Sequence[float | None]] = {
        "mean COD": [None if cycle.name == first else values.mean_discrepancy for cycle, values in diagnosed],
        "mean true loss": [values.mean_loss for _, values in diagnosed],
    }
    return charts.trends([cycle.metrics.labels for cycle, _ in diagnosed], curves, width)


def render(
    campaign: CampaignResult, drawings: Mapping[str, str], tiles: Mapping[str, np.ndarray], best_model: str
) -> str:
    """The page's HTML. `drawings` are SVG charts by name, `tiles` the images to show of each cycle's query.

    `best_model` is the name of the best model's file.
    """
    environment = html_environment(Path(__file__).parent / "templates")
    environment.filters |= {
        "percent": format_percent,
        "number": format_number,
        "share": format_share,
        "thousands": lambda value: f"{value:,}",
    }
    side = gallery.TILE_SIDE if campaign.cycles[0].metrics.mean_iou is None else 4 * gallery.TILE_SIDE
    pictures = {
        cycle: [data_uri(gallery.to_png(gallery.thumbnail(image, side))) for image in images]
        for cycle, images in tiles.items()
    }
    inline = {name: inline_svg(name, drawing) for name, drawing in drawings.items()}
    template = environment.get_template("report.html")
    values = {"campaign": campaign, "palette": PALETTE, "drawings": inline, "pictures": pictures}
    return template.render(values, best_model=best_model) + "\n"


def inline_svg(name: str, svg: str) -> Markup:
    """An SVG file as part of the page: unique ids, colors from the style sheet, no DTD, metadata or namespaces."""
    body = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    view_box = re.search(r'viewBox="[^"]*"', body)
    body = re.sub(r"<svg[^>]*>", f'<svg {view_box[0] if view_box else ""} aria-hidden="true">', body, count=1)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{name}-", body)
    for role, color in PALETTE.items():
        body = body.replace(color, f"var(--{role})")
    return Markup(body)


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def format_percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def format_code(text: str) -> Markup:
    """Text between backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))
