"""The report's page: one HTML file that needs nothing but itself."""

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, ValidationError

from codline.core.errors import DataError
from codline.core.files import read_json
from codline.core.primary_metric import headline
from codline.data import tables
from codline.report import charts, gallery


class Metrics(BaseModel):
    """What evaluate says of a cycle."""

    model_config = ConfigDict(frozen=True)

    labels: int
    accuracy: float
    loss: float
    calibration_error: float
    per_class_accuracy: dict[str, float]
    mean_iou: float | None = None  # this and the rest: of segmentation
    per_class_iou: dict[str, float | None] | None = None
    pixel_share: dict[str, float] | None = None
    confusion: list[list[int]] | None = None

    @property
    def headline(self) -> tuple[str, float]:
        return headline(self.model_dump())

    @property
    def by_class(self) -> list[float]:
        """The headline of each class; 0 where a class is neither there nor predicted."""
        return [value or 0.0 for value in (self.per_class_iou or self.per_class_accuracy).values()]


class Tod(BaseModel):
    """How many of the hardest images TOD over some steps would have captured."""

    capture: list[float]
    capture_gain: float


class Diagnostics(BaseModel):
    """What diagnose says of a cycle, if the truth is known."""

    model_config = ConfigDict(frozen=True)

    spearman: float | None
    spearman_low: float | None
    spearman_high: float | None
    mean_discrepancy: float | None
    mean_loss: float
    mean_loss_of_query: float
    bucket_losses: list[float]
    capture: list[float]
    capture_gain: float
    overlap: dict[str, float]
    squared_gradient_norm: float | None
    tod: dict[int, Tod]


@dataclass(frozen=True)
class Query:
    """What a cycle asked for, best first; an image that nobody answered has no label."""

    ids: np.ndarray
    scores: np.ndarray
    labels: list[str | None]
    wrong: int  # answers that differ from the truth, where that is known

    @property
    def captions(self) -> list[tuple[str, str]]:
        return [
            (label or "unanswered", f"#{rank} · {number(score)}")
            for rank, (label, score) in enumerate(zip(self.labels, self.scores, strict=True), 1)
        ]

    @property
    def most_asked(self) -> list[tuple[str, int]]:
        return Counter(label for label in self.labels if label is not None).most_common(5)


@dataclass(frozen=True)
class Cycle:
    name: str
    metrics: Metrics
    diagnostics: Diagnostics | None
    losses: dict[str, np.ndarray]  # by epoch
    query: Query | None

    @property
    def row(self) -> dict[str, Any]:
        """Its line in curve.csv."""
        known = {
            key: getattr(self.metrics, key) for key in ("labels", "accuracy", "mean_iou", "loss", "calibration_error")
        }
        return {"cycle": self.name, **known, "spearman": self.diagnostics.spearman if self.diagnostics else None}


@dataclass(frozen=True)
class Campaign:
    cycles: list[Cycle]  # the finished ones
    planned: list[str]
    classes: list[str]
    shape: tuple[int, ...]
    pool: int
    confusion: np.ndarray  # of the last finished cycle

    @property
    def rivals(self) -> list[str]:
        """The strategies whose queries were compared with the campaign's own."""
        return list(
            dict.fromkeys(name for cycle in self.cycles if cycle.diagnostics for name in cycle.diagnostics.overlap)
        )

    @property
    def missing(self) -> list[str]:
        done = {cycle.name for cycle in self.cycles}
        return [name for name in self.planned if name not in done]


R = TypeVar("R", bound=BaseModel)


def opened(path: Path, kind: type[R]) -> R:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"{path}: {'.'.join(map(str, first['loc']))}: found {first['input']!r}, {first['msg'].lower()}"
        ) from error


def confusion(actual: Sequence[str], predicted: Sequence[str], classes: list[str]) -> np.ndarray:
    """Counts: rows the truth, columns the prediction."""
    index = {name: i for i, name in enumerate(classes)}
    if strange := sorted({*actual, *predicted} - set(index)):
        raise DataError(f"predictions.csv: found class {strange[0]!r}, expected one of {', '.join(classes)}")
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, ([index[name] for name in actual], [index[name] for name in predicted]), 1)
    return counts


def counts(metrics: Metrics, predictions: Path, classes: list[str]) -> np.ndarray:
    """Rows the truth, columns the prediction: of images, or of pixels."""
    if metrics.confusion is not None:
        return np.array(metrics.confusion)
    said = tables.read_csv(predictions, tables.PREDICTIONS)
    return confusion(said["actual"].to_pylist(), said["predicted"].to_pylist(), classes)


def figures(campaign: Campaign, width: float = charts.WIDE) -> dict[str, Figure]:
    """All charts that the campaign has the data for; on a phone, those that would be too small to read there."""
    cycles = campaign.cycles
    rankings = [ranking(cycle, campaign.pool) for cycle in cycles if cycle.diagnostics and cycle.query]
    moving = [
        name
        for name in cycles[0].losses
        if name == "task loss" or any((cycle.losses[name] > 0).any() for cycle in cycles)
    ]
    drawn = {
        "learning_curve": charts.learning_curve(
            [c.metrics.labels for c in cycles],
            [c.metrics.headline[1] for c in cycles],
            campaign.pool,
            width,
            of=cycles[0].metrics.headline[0],
        ),
        "training": charts.training({c.name: {name: c.losses[name] for name in moving} for c in cycles}, width),
    }
    if rankings:
        drawn |= {
            "buckets": charts.buckets(rankings, width),
            "capture": charts.capture(rankings, width),
            "trends": trends(campaign, width),
        }
    known = [(cycle, cycle.diagnostics) for cycle in cycles if cycle.diagnostics]
    if known and all(told.squared_gradient_norm is not None for _, told in known):
        steepness = {"mean squared gradient norm": [told.squared_gradient_norm for _, told in known]}
        drawn["gradients"] = charts.trends([cycle.metrics.labels for cycle, _ in known], steepness, width)
    if panels := {
        cycle.name: {steps: tod.capture for steps, tod in told.tod.items()} for cycle, told in known if told.tod
    }:
        drawn["tod"] = charts.captures(panels, width)
    if width == charts.WIDE:
        values = np.array([c.metrics.by_class for c in cycles])
        drawn["per_class"] = charts.per_class(
            values,
            campaign.classes,
            [c.name for c in cycles],
            of="IoU" if cycles[0].metrics.per_class_iou else "accuracy",
        )
        drawn["confusion"] = charts.confusion(campaign.confusion, campaign.classes)
    return drawn


def ranking(cycle: Cycle, pool: int) -> charts.Ranking:
    assert cycle.diagnostics
    assert cycle.query
    told = cycle.diagnostics
    asked = len(cycle.query.ids) / (pool - cycle.metrics.labels)
    return charts.Ranking(
        cycle.name, told.bucket_losses, told.mean_loss, asked, told.spearman, told.capture, told.capture_gain
    )


def trends(campaign: Campaign, width: float) -> Figure:
    """The first cycle's discrepancy is that from an untrained model, which is another thing than from the cycle before."""
    known = [(cycle, cycle.diagnostics) for cycle in campaign.cycles if cycle.diagnostics]
    moved = [None if cycle.name == campaign.planned[0] else told.mean_discrepancy for cycle, told in known]
    curves: dict[str, Sequence[float | None]] = {
        "mean COD": moved,
        "mean true loss": [told.mean_loss for _, told in known],
    }
    return charts.trends([cycle.metrics.labels for cycle, _ in known], curves, width)


def render(campaign: Campaign, drawings: Mapping[str, str], tiles: Mapping[str, np.ndarray]) -> str:
    """The page: `drawings` are SVG charts by name, `tiles` the images of each cycle's query that are to be shown."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "number": number,
        "share": charts.share,
        "thousands": lambda value: f"{value:,}",
    }
    side = gallery.SIDE if campaign.cycles[0].metrics.mean_iou is None else 4 * gallery.SIDE
    pictures = {
        name: [data_uri(gallery.png(gallery.picture(image, side))) for image in images]
        for name, images in tiles.items()
    }
    inline = {name: inlined(name, drawing) for name, drawing in drawings.items()}
    return (
        environment.get_template("report.html").render(
            campaign=campaign, palette=charts.PALETTE, drawings=inline, pictures=pictures
        )
        + "\n"
    )


def inlined(name: str, svg: str) -> Markup:
    """An SVG file as a part of the page: ids made unique, colours handed to the style sheet, links to its DTD and name spaces dropped."""
    body = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    head = re.search(r'viewBox="[^"]*"', body)
    body = re.sub(r"<svg[^>]*>", f'<svg {head[0] if head else ""} aria-hidden="true">', body, count=1)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{name}-", body)
    for role, colour in charts.PALETTE.items():
        body = body.replace(colour, f"var(--{role})")
    return Markup(body)


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def number(value: float | None) -> str:
    """Three digits that matter."""
    return "n/a" if value is None else f"{value:#.3g}".rstrip(".").replace("e-0", "e-")
