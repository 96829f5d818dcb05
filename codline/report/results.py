"""What the report shows of a campaign, read from the files of its cycles."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from codline.core.errors import DataError
from codline.core.files import read_json
from codline.core.primary_metric import primary_metric
from codline.data import tables
from codline.data.dataset_info import DatasetInfo
from codline.report.query_images import label_text, read_annotations


class Metrics(BaseModel):
    """metrics.json of a cycle."""

    model_config = ConfigDict(frozen=True)

    labels: int
    accuracy: float
    loss: float
    calibration_error: float
    per_class_accuracy: dict[str, float]
    # Segmentation only:
    mean_iou: float | None = None
    per_class_iou: dict[str, float | None] | None = None
    pixel_share: dict[str, float] | None = None
    confusion: list[list[int]] | None = None

    @property
    def metric_name(self) -> str:
        return primary_metric(self.model_dump())[0]

    @property
    def metric(self) -> float:
        """The primary metric: accuracy, or mean IoU for segmentation."""
        return primary_metric(self.model_dump())[1]

    @property
    def metric_by_class(self) -> list[float]:
        """The primary metric of each class; 0 for a class that is neither present nor predicted."""
        return [value or 0.0 for value in (self.per_class_iou or self.per_class_accuracy).values()]


class TodCapture(BaseModel):
    """Share of the hardest images that TOD over some number of steps would have captured."""

    model_config = ConfigDict(frozen=True)

    capture: list[float]
    capture_gain: float


class Diagnostics(BaseModel):
    """diagnostics.json of a query cycle whose true labels are known."""

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
    tod: dict[int, TodCapture]


@dataclass(frozen=True)
class QueryResult:
    """A cycle's query by rank."""

    ids: np.ndarray
    scores: np.ndarray
    labels: list[str | None]  # None for an image that has not been labeled
    wrong: int  # labels that differ from the truth, if that is known

    @property
    def captions(self) -> list[tuple[str, str]]:
        return [
            (label or "unlabelled", f"#{rank} · {format_number(score)}")
            for rank, (label, score) in enumerate(zip(self.labels, self.scores, strict=True), 1)
        ]

    @property
    def most_frequent_labels(self) -> list[tuple[str, int]]:
        return Counter(label for label in self.labels if label is not None).most_common(3)


@dataclass(frozen=True)
class CycleResult:
    name: str
    metrics: Metrics
    diagnostics: Diagnostics | None
    losses: dict[str, np.ndarray]  # per epoch
    query: QueryResult | None

    @property
    def curve_row(self) -> dict[str, Any]:
        """The cycle's row in curve.csv."""
        columns = ("labels", "accuracy", "mean_iou", "loss", "calibration_error")
        values = {name: getattr(self.metrics, name) for name in columns}
        return {"cycle": self.name, **values, "spearman": self.diagnostics.spearman if self.diagnostics else None}


@dataclass(frozen=True)
class CampaignResult:
    cycles: list[CycleResult]  # those that have been evaluated
    planned: list[str]
    classes: list[str]
    shape: tuple[int, ...]
    pool: int
    confusion: np.ndarray  # of the last evaluated cycle

    @property
    def best(self) -> CycleResult:
        """The cycle with the highest primary metric; on a tie, the one with fewest labels."""
        return max(self.cycles, key=lambda cycle: (cycle.metrics.metric, -cycle.metrics.labels))

    @property
    def diagnosed(self) -> list[tuple[CycleResult, Diagnostics]]:
        return [(cycle, cycle.diagnostics) for cycle in self.cycles if cycle.diagnostics]

    @property
    def compared_strategies(self) -> list[str]:
        """Strategies whose queries were compared with the campaign's own, in the order of their first appearance."""
        return list(dict.fromkeys(name for _, diagnostics in self.diagnosed for name in diagnostics.overlap))

    @property
    def missing(self) -> list[str]:
        evaluated = {cycle.name for cycle in self.cycles}
        return [name for name in self.planned if name not in evaluated]


def read_campaign(folder: Path, planned: list[str], info: DatasetInfo, pool: int) -> CampaignResult:
    """Read the cycles that have been evaluated so far."""
    evaluated = [folder / name for name in planned if (folder / name / "metrics.json").exists()]
    if not evaluated:
        expected = folder / planned[0] / "metrics.json"
        raise DataError(f"{folder}: found no metrics.json of any cycle, expected at least {expected}; run dvc repro")
    cycles = [read_cycle(path, info.classes) for path in evaluated]
    confusion = confusion_counts(cycles[-1].metrics, evaluated[-1] / "predictions.csv", info.classes)
    return CampaignResult(cycles, planned, info.classes, info.shape, pool, confusion)


def read_cycle(folder: Path, classes: list[str]) -> CycleResult:
    metrics = read_result(folder / "metrics.json", Metrics)
    if list(metrics.per_class_accuracy) != classes:
        found, expected = ", ".join(metrics.per_class_accuracy), ", ".join(classes)
        raise DataError(f"{folder / 'metrics.json'}: found classes {found}, expected {expected}")
    path = folder / "diagnostics.json"
    is_diagnosed = path.exists() and "mean_loss" in read_json(path)
    training = tables.read_csv(folder / "training.csv", tables.TRAINING)
    return CycleResult(
        folder.name,
        metrics,
        diagnostics=read_result(path, Diagnostics) if is_diagnosed else None,
        losses={name.replace("_", " "): training[name].to_numpy() for name in ("task_loss", "unsupervised_loss")},
        query=read_query(folder, classes) if (folder / "query.parquet").exists() else None,
    )


def read_query(folder: Path, classes: list[str]) -> QueryResult:
    query = tables.read_table(folder / "query.parquet", tables.QUERY).sort_by("rank")
    annotations = read_annotations(folder / "annotations.parquet")
    labels = [label_text(annotations[i], classes) if i in annotations else None for i in query["id"].to_pylist()]
    wrong = read_json(folder / "cost.json").get("wrong") or 0 if annotations else 0
    return QueryResult(query["id"].to_numpy(), query["score"].to_numpy(), labels, wrong)


Result = TypeVar("Result", bound=BaseModel)


def read_result(path: Path, kind: type[Result]) -> Result:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: found {first['input']!r}, {first['msg'].lower()}") from error


def confusion_counts(metrics: Metrics, predictions: Path, classes: list[str]) -> np.ndarray:
    """Images (for segmentation: pixels) by true class (row) and predicted class (column)."""
    if metrics.confusion is not None:
        return np.array(metrics.confusion)
    table = tables.read_csv(predictions, tables.PREDICTIONS)
    actual, predicted = table["actual"].to_pylist(), table["predicted"].to_pylist()
    index = {name: i for i, name in enumerate(classes)}
    if unknown := sorted({*actual, *predicted} - set(index)):
        raise DataError(f"predictions.csv: found class {unknown[0]!r}, expected one of {', '.join(classes)}")
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, ([index[name] for name in actual], [index[name] for name in predicted]), 1)
    return counts


def format_number(value: float | None) -> str:
    """Three significant digits."""
    return "n/a" if value is None else f"{value:#.3g}".rstrip(".").replace("e-0", "e-")
