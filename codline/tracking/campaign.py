"""The campaign in the workspace as MLflow shows it: its name and parameters, and the metrics in each cycle's files."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from codline.core.files import file_sha256, read_json
from codline.core.params import plugins_by_name
from codline.data import tables
from codline.data.dataset_info import DatasetInfo, read_dataset_info
from codline.runtime import stage_times, state_directory
from codline.runtime.campaign_identity import SEPARATOR, CampaignIdentity
from codline.runtime.pipeline import Pipeline
from codline.runtime.stage_times import Span
from codline.tracking.store import Points

EVALUATION_FILES = ("model", "dataset", "validation", "test", "metrics", "details")


@dataclass(frozen=True)
class Part:
    """Results that are logged together. Once they are, the run has their digest in a tag."""

    name: str
    stage: str
    files: tuple[Path, ...]

    def exists(self) -> bool:
        return all(path.exists() for path in self.files)

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(file_sha256(path) for path in self.files).encode()).hexdigest()[:16]


class TrackedCampaign:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @cached_property
    def identity(self) -> CampaignIdentity:
        return CampaignIdentity(self.pipeline.params)

    @property
    def key(self) -> str:
        return self.identity.key

    @property
    def params(self) -> dict[str, str]:
        """All parameters; `dataset` and `strategy` repeat two of them under names that fit the run list's columns."""
        short = {"dataset": self.dataset, "strategy": self.identity.method}
        return {key: str(value) for key, value in flatten(self.identity.params)} | short

    @property
    def dataset(self) -> str:
        return self.identity.dataset

    def name(self, cycle: str | None = None) -> str:
        return self.identity.title if cycle is None else SEPARATOR.join((self.identity.title, cycle))

    @cached_property
    def data(self) -> Part:
        """The tables that prepare wrote: other ones under the same parameters mean that the raw input has changed."""
        names = ("pool", "validation", "test", "labeled")
        return Part("data", "prepare", tuple(self.pipeline.path("prepare", name) for name in names))

    def dataset_info(self) -> DatasetInfo:
        return read_dataset_info(self.pipeline.path("prepare", "dataset"))

    def parts(self, cycle: str) -> list[Part]:
        """In the order in which they are logged."""

        def files(stage: str, *arguments: str) -> tuple[Path, ...]:
            return tuple(self.pipeline.path(stage, argument, cycle) for argument in arguments)

        parts = [
            Part("training", "train", files("train", "pool", "labeled", "training_curve")),
            Part("metrics", "evaluate", files("evaluate", *EVALUATION_FILES)),
            Part("confusion", "evaluate", files("evaluate", "details", "predictions")),
        ]
        query_parts = [
            Part("query", "select", files("score", "scores") + files("select", "query")),
            Part("diagnostics", "diagnose", files("diagnose", "diagnostics")),
        ]
        return parts + (query_parts if cycle in self.pipeline.queries else [])

    def required_parts(self, cycle: str) -> set[str]:
        """What a finished cycle has. Diagnostics are optional: they need true labels."""
        return {part.name for part in self.parts(cycle)} - {"diagnostics"}

    def training_curve(self, cycle: str) -> Points:
        path = self.pipeline.path("train", "training_curve", cycle)
        return curve_points(tables.read_csv(path, tables.TRAINING).to_pylist())

    def metrics(self, cycle: str) -> dict[str, Points]:
        """{split: metrics of the cycle's model on it}"""
        metrics, details = (read_json(self.pipeline.path("evaluate", name, cycle)) for name in ("metrics", "details"))
        known = {key: value for key, value in metrics.items() if value is not None}
        chosen_by = {key: known.pop(key) for key in list(known) if key.startswith("validation_")}
        accuracies = class_metrics("class_accuracy", details["per_class_accuracy"])
        ious = class_metrics("class_iou", details.get("per_class_iou") or {})
        return {"test": single_points(known | accuracies | ious), "validation": single_points(chosen_by)}

    def diagnostics(self, cycle: str) -> Points:
        values = dict(flatten(read_json(self.pipeline.path("diagnose", "diagnostics", cycle))))
        numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
        return single_points({f"diagnose/{key.replace('.', '/')}": value for key, value in numbers.items()})

    def acquisition_seconds(self, cycle: str) -> dict[str, float]:
        seconds = self.stage_seconds("score", cycle) | self.stage_seconds("select", cycle)
        return seconds | ({"seconds/acquisition": sum(seconds.values())} if len(seconds) == 2 else {})

    def span(self, cycle: str) -> Span | None:
        """When the cycle's stages ran, if notes tell."""
        stages = [name for name in self.pipeline.stage_names() if name.endswith(f"@{cycle}")]
        return stage_times.span_of(stages, self.key)

    def start(self, cycle: str) -> float | None:
        """When the running training of the cycle started, or its first stage if none is running."""
        running = state_directory.read_note("progress", f"train@{cycle}") or {}
        span = self.span(cycle)
        return running.get("started", span and span.start)

    def stage_seconds(self, stage: str, cycle: str) -> dict[str, float]:
        note = state_directory.read_note("seconds", f"{stage}@{cycle}")
        return {f"seconds/{stage}": note["seconds"]} if note else {}


def curve_points(rows: list[dict[str, Any]]) -> Points:
    names = [name for name in tables.TRAINING.names if name != "epoch"]
    return {f"train/{name}": {int(row["epoch"]): float(row[name]) for row in rows} for name in names}


def class_metrics(prefix: str, values: dict[str, float | None]) -> dict[str, float]:
    """Metrics per class, with the characters that MLflow refuses in names replaced: a class may have any name."""
    names = {name: re.sub(r"[^\w\-. ]", "_", name) for name in values}
    return {f"{prefix}/{names[name]}": value for name, value in values.items() if value is not None}


def single_points(values: dict[str, Any]) -> Points:
    return {key: {0: float(value)} for key, value in values.items()}


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dictionaries as pairs of dotted key and value. In lists of plug-ins, names are part of the key."""
    for key, value in values.items():
        value = plugins_by_name(value) or value
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
