"""The campaign in the workspace as MLflow shows it: its name and parameters, and the metrics in each cycle's files."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from codline.core.files import file_sha256, read_json
from codline.data import tables
from codline.data.dataset_info import DatasetInfo, read_dataset_info
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking.store import Points

# Sections of params.yaml in which two states of the same campaign may differ: it can be continued with more cycles.
LENGTH_SECTIONS = ("cycles", "queries", "report")
PLAIN_METRICS = ("labels", "accuracy", "mean_iou", "loss", "calibration_error")


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
    def identity(self) -> dict[str, Any]:
        """The parameters that make it this campaign and no other."""
        return {key: value for key, value in self.pipeline.params.items() if key not in LENGTH_SECTIONS}

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def params(self) -> dict[str, str]:
        return {key: str(value) for key, value in flatten(self.identity)}

    @property
    def dataset(self) -> str:
        return str(self.pipeline.params["prepare"]["dataset"]["name"])

    @property
    def name(self) -> str:
        return f"{self.dataset} {self.method} seed {self.pipeline.params['seed']}"

    @property
    def method(self) -> str:
        """The strategy, unless all images are labeled from the start and no query is ever selected."""
        everything_labeled = self.pipeline.params["prepare"]["start"] == "all" and not self.pipeline.queries
        return "full training" if everything_labeled else str(self.pipeline.params["score"]["strategy"]["name"])

    def dataset_info(self) -> DatasetInfo:
        return read_dataset_info(self.pipeline.path("prepare", "dataset"))

    def parts(self, cycle: str) -> list[Part]:
        """In the order in which they are logged."""

        def files(stage: str, *arguments: str) -> tuple[Path, ...]:
            return tuple(self.pipeline.path(stage, argument, cycle) for argument in arguments)

        parts = [
            Part("training", "train", files("train", "pool", "labeled", "training_curve")),
            Part("metrics", "evaluate", files("evaluate", "model", "dataset", "test", "metrics")),
            Part("confusion", "evaluate", files("evaluate", "metrics", "predictions")),
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

    def metrics(self, cycle: str) -> Points:
        metrics = read_json(self.pipeline.path("evaluate", "metrics", cycle))
        plain = {key: metrics[key] for key in PLAIN_METRICS if key in metrics}
        accuracies = class_metrics("class_accuracy", metrics["per_class_accuracy"])
        return single_points(plain | accuracies | class_metrics("class_iou", metrics.get("per_class_iou", {})))

    def diagnostics(self, cycle: str) -> Points:
        values = dict(flatten(read_json(self.pipeline.path("diagnose", "diagnostics", cycle))))
        numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
        return single_points({f"diagnose/{key.replace('.', '/')}": value for key, value in numbers.items()})

    def acquisition_seconds(self, cycle: str) -> dict[str, float]:
        seconds = self.stage_seconds("score", cycle) | self.stage_seconds("select", cycle)
        return seconds | ({"seconds/acquisition": sum(seconds.values())} if len(seconds) == 2 else {})

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
    """Nested dictionaries as pairs of dotted key and value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
