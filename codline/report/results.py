"""What the report shows of a campaign, read from the files of its cycles."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from codline.core.campaign_setup import CampaignSetup
from codline.core.errors import DataError
from codline.core.files import read_json
from codline.core.primary_metric import PrimaryMetric, best_cycle, primary_metric, selection_value
from codline.data import tables
from codline.data.dataset_info import DatasetInfo
from codline.data.image_names import ImageNames
from codline.report.query_images import label_text, read_annotations


class Metrics(BaseModel):
    """metrics.json of a cycle."""

    model_config = ConfigDict(frozen=True)

    labels: int
    accuracy: float
    loss: float
    calibration_error: float
    # Classification only:
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    balanced_accuracy: float | None = None
    macro_f1: float | None = None
    validation_accuracy: float | None = None
    # Segmentation only:
    mean_iou: float | None = None
    mean_iou_low: float | None = None
    mean_iou_high: float | None = None
    validation_mean_iou: float | None = None

    @property
    def primary(self) -> PrimaryMetric:
        return primary_metric(self.model_dump())

    @property
    def validation(self) -> float | None:
        """The primary metric on the validation split."""
        return selection_value(self.model_dump())


class Details(BaseModel):
    """details.json of a cycle. None for a class that has no test images."""

    model_config = ConfigDict(frozen=True)

    test_images: int
    validation_images: int
    per_class_images: dict[str, int]
    per_class_accuracy: dict[str, float | None]
    # Segmentation only:
    per_class_iou: dict[str, float | None] | None = None
    pixel_share: dict[str, float] | None = None
    confusion: list[list[int]] | None = None

    @property
    def per_class(self) -> dict[str, float | None]:
        """The primary metric of each class."""
        return self.per_class_iou or self.per_class_accuracy


class TodCapture(BaseModel):
    """Share of the hardest images that TOD over some number of steps would have captured."""

    model_config = ConfigDict(frozen=True)

    capture: list[float]
    capture_gain: float


class NormsWithinCycle(BaseModel):
    """Mean squared gradient norms after some steps of a cycle's training, the last of them at its end."""

    model_config = ConfigDict(frozen=True)

    steps: list[int]
    all: list[float]
    variation: list[float]  # coefficient of variation over the images

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.array(self.steps), np.array(self.all), np.array(self.variation)


class SquaredGradientNorm(BaseModel):
    """Mean squared gradient norm of a cycle's model over all training images, and the same during its training."""

    model_config = ConfigDict(frozen=True)

    all: float
    variation: float
    within_cycle: NormsWithinCycle


class Diagnostics(BaseModel):
    """diagnostics.json of a query cycle whose true labels are known."""

    model_config = ConfigDict(frozen=True)

    # None if the strategy selects whole queries and does not rank the pool; Spearman's also for constant scores:
    spearman: float | None
    spearman_low: float | None
    spearman_high: float | None
    bucket_losses: list[float] | None
    capture: list[float] | None
    capture_gain: float | None
    # For every strategy:
    mean_discrepancy: float | None
    mean_loss: float
    mean_loss_of_query: float
    loss_ratio: float | None
    overlap: dict[str, float]
    squared_gradient_norm: SquaredGradientNorm | None
    tod: dict[int, TodCapture]


@dataclass(frozen=True)
class QueryResult:
    """A cycle's query by rank. Once it is annotated: the labeled images, at the end those that are not in the query.

    People may have labeled images that the query contained before photographs were added or answers corrected.
    """

    ids: np.ndarray
    places: list[str]  # rank, and score if the strategy ranks the pool
    files: list[str]  # the first name of each image, "" if it has none
    labels: list[str | None]  # None for an image that has not been labeled
    ranks_pool: bool  # whether the strategy ranks the pool, so that its scores mean something
    wrong: int  # labels that differ from the truth, if that is known

    @property
    def captions(self) -> list[tuple[str, str]]:
        return [(label or "unlabelled", place) for label, place in zip(self.labels, self.places, strict=True)]

    @property
    def grid_captions(self) -> list[tuple[str, str]]:
        """Captions with file names in place of rank and score, where there are any."""
        pairs = zip(self.captions, self.files, strict=True)
        return [(label, file.rpartition("/")[2] or place) for (label, place), file in pairs]

    @property
    def most_frequent_labels(self) -> list[tuple[str, int]]:
        return Counter(label for label in self.labels if label is not None).most_common(3)


@dataclass(frozen=True)
class CycleResult:
    name: str
    metrics: Metrics
    details: Details
    diagnostics: Diagnostics | None
    losses: dict[str, np.ndarray]  # per epoch
    query: QueryResult | None

    @property
    def curve_row(self) -> dict[str, Any]:
        """The cycle's row in curve.csv."""
        diagnosed = self.diagnostics.model_dump(include={"loss_ratio", "spearman"}) if self.diagnostics else {}
        return {"cycle": self.name, **self.metrics.model_dump(), **diagnosed}


@dataclass(frozen=True)
class CampaignResult:
    setup: CampaignSetup
    seed: int
    cycles: list[CycleResult]  # those that have been evaluated
    planned: list[str]
    classes: list[str]
    shape: tuple[int, ...]
    pool: int
    confusion: np.ndarray  # of the last evaluated cycle

    @property
    def best(self) -> CycleResult:
        """The cycle with the highest validation metric; the last one without validation images."""
        best = best_cycle({cycle.name: cycle.metrics.model_dump() for cycle in self.cycles})
        return next(cycle for cycle in self.cycles if cycle.name == best)

    @property
    def diagnosed(self) -> list[tuple[CycleResult, Diagnostics]]:
        return [(cycle, cycle.diagnostics) for cycle in self.cycles if cycle.diagnostics]

    @property
    def ranks_pool(self) -> bool:
        """Whether the strategy ranks the unlabeled images, and does not only select whole queries."""
        return any(diagnostics.capture is not None for _, diagnostics in self.diagnosed)

    @property
    def gradient_variation(self) -> str:
        """Range of the coefficients of variation of squared gradient norms over images."""
        norms = [diagnostics.squared_gradient_norm for _, diagnostics in self.diagnosed]
        variations = [value for norm in norms if norm for value in norm.within_cycle.variation]
        return f"{min(variations):.2f} to {max(variations):.2f}"

    @property
    def compared_strategies(self) -> list[str]:
        """Strategies whose queries were compared with the campaign's own, in the order of their first appearance."""
        return list(dict.fromkeys(name for _, diagnostics in self.diagnosed for name in diagnostics.overlap))

    @property
    def missing(self) -> list[str]:
        evaluated = {cycle.name for cycle in self.cycles}
        return [name for name in self.planned if name not in evaluated]

    @property
    def strategy(self) -> str:
        return self.setup.strategy if len(self.planned) > 1 else "none: a single cycle selects no query"

    @property
    def choice(self) -> str:
        """How the best model was chosen."""
        value = self.best.metrics.validation
        if value is None:
            return "the last one, as there are no validation images to choose by"
        return f"chosen by validation {self.best.metrics.primary.name} ({value:.1%})"

    @property
    def next_step(self) -> str:
        last = self.cycles[-1]
        if last.query and (count := last.query.labels.count(None)):
            return f"Label the {count:,} images in queries/{last.name}, then run `codline run`."
        if self.missing:
            return f"Run `codline run` for {', '.join(self.missing)}."
        return "The campaign is complete."


def read_campaign(
    folder: Path, setup: CampaignSetup, seed: int, planned: list[str], info: DatasetInfo, pool: int, files: Path
) -> CampaignResult:
    """Read the cycles that have been evaluated so far."""
    evaluated = [folder / name for name in planned if (folder / name / "metrics.json").exists()]
    if not evaluated:
        expected = folder / planned[0] / "metrics.json"
        raise DataError(f"{folder}: found no metrics.json of any cycle, expected at least {expected}; run dvc repro")
    cycles = [read_cycle(path, info.classes, files) for path in evaluated]
    confusion = confusion_counts(cycles[-1].details, evaluated[-1] / "predictions.csv", info.classes)
    return CampaignResult(setup, seed, cycles, planned, info.classes, info.shape, pool, confusion)


def read_cycle(folder: Path, classes: list[str], files: Path) -> CycleResult:
    metrics = read_result(folder / "metrics.json", Metrics)
    details = read_result(folder / "details.json", Details)
    if list(details.per_class_accuracy) != classes:
        found, expected = ", ".join(details.per_class_accuracy), ", ".join(classes)
        raise DataError(f"{folder / 'details.json'}: found classes {found}, expected {expected}")
    path = folder / "diagnostics.json"
    is_diagnosed = path.exists() and "mean_loss" in read_json(path)
    training = tables.read_csv(folder / "training.csv", tables.TRAINING)
    return CycleResult(
        folder.name,
        metrics,
        details,
        diagnostics=read_result(path, Diagnostics) if is_diagnosed else None,
        losses={name.replace("_", " "): training[name].to_numpy() for name in ("task_loss", "unsupervised_loss")},
        query=read_query(folder, classes, files) if (folder / "query.parquet").exists() else None,
    )


def read_query(folder: Path, classes: list[str], files: Path) -> QueryResult:
    query = tables.read_table(folder / "query.parquet", tables.QUERY).sort_by("rank")
    ranks_pool = tables.ranks_pool(folder / "query.parquet")
    places = {
        i: f"#{rank} · {format_number(score)}" if ranks_pool else f"#{rank}"
        for i, rank, score in zip(*query.to_pydict().values(), strict=True)
    }
    annotations = read_annotations(folder / "annotations.parquet", len(classes))
    if annotations:
        others = dict.fromkeys((i for i in annotations if i not in places), "not in the query")
        places = {i: place for i, place in places.items() if i in annotations} | others
    labels = [label_text(annotations[i], classes) if i in annotations else None for i in places]
    wrong = read_json(folder / "cost.json").get("wrong") or 0 if annotations else 0
    ids = np.array(list(places), np.int64)
    return QueryResult(ids, list(places.values()), ImageNames(files).first_names(ids), labels, ranks_pool, wrong)


Result = TypeVar("Result", bound=BaseModel)


def read_result(path: Path, kind: type[Result]) -> Result:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: found {first['input']!r}, {first['msg'].lower()}") from error


def confusion_counts(details: Details, predictions: Path, classes: list[str]) -> np.ndarray:
    """Images (for segmentation: pixels) by true class (row) and predicted class (column)."""
    if details.confusion is not None:
        return np.array(details.confusion)
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
