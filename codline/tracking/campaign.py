"""What is to be logged of a cycle: its parts, each with the files that it is made from."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from codline.core.files import digest, read_json
from codline.data import dataset_info, tables
from codline.runtime import state_directory
from codline.runtime.pipeline import Pipeline
from codline.tracking.store import Points

APART = ("cycles", "queries", "report")  # more cycles make the same campaign longer, not another one


@dataclass(frozen=True)
class Part:
    """A run carries `digest` once the part is logged: the same again is skipped, another one means that the run is out of date."""

    name: str
    stage: str  # whose files these are
    sources: tuple[Path, ...]

    @property
    def present(self) -> bool:
        return all(path.exists() for path in self.sources)

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(digest(path) for path in self.sources).encode()).hexdigest()[:16]


class Campaign:
    """The campaign that params.yaml describes now."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @property
    def decisive(self) -> dict[str, Any]:
        return {key: value for key, value in self.pipeline.params.items() if key not in APART}

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def params(self) -> dict[str, str]:
        return {key: str(value) for key, value in flattened(self.decisive)}

    @property
    def dataset(self) -> str:
        return str(self.pipeline.params["prepare"]["dataset"]["name"])

    @property
    def name(self) -> str:
        return f"{self.dataset} {self.method} seed {self.pipeline.params['seed']}"

    @property
    def method(self) -> str:
        """The strategy, where there is anything to ask for."""
        full = self.pipeline.params["prepare"]["start"] == "all" and not self.pipeline.queries
        return "full training" if full else str(self.pipeline.params["score"]["strategy"]["name"])

    def facts(self) -> dataset_info.Dataset:
        return dataset_info.opened(self.pipeline.path("prepare", "dataset"))

    def parts(self, cycle: str) -> list[Part]:
        """In the order in which they are logged."""

        def files(stage: str, *arguments: str) -> tuple[Path, ...]:
            return tuple(self.pipeline.path(stage, argument, cycle) for argument in arguments)

        parts = [
            Part("training", "train", files("train", "pool", "labeled", "training_curve")),
            Part("metrics", "evaluate", files("evaluate", "model", "dataset", "test", "metrics")),
            Part("confusion", "evaluate", files("evaluate", "metrics", "predictions")),
        ]
        asking = [
            Part("query", "select", files("score", "scores") + files("select", "query")),
            Part("diagnostics", "diagnose", files("diagnose", "diagnostics")),
        ]
        return parts + (asking if cycle in self.pipeline.queries else [])

    def needed(self, cycle: str) -> set[str]:
        """The parts without which a cycle is not finished; diagnostics need a known truth, so they are not among them."""
        return {part.name for part in self.parts(cycle)} - {"diagnostics"}

    def curve(self, cycle: str) -> Points:
        return curve_points(
            tables.read_csv(self.pipeline.path("train", "training_curve", cycle), tables.TRAINING).to_pylist()
        )

    def metrics(self, cycle: str) -> Points:
        metrics = read_json(self.pipeline.path("evaluate", "metrics", cycle))
        plain = {
            key: metrics[key]
            for key in ("labels", "accuracy", "mean_iou", "loss", "calibration_error")
            if key in metrics
        }
        classes = {f"class_accuracy/{allowed(name)}": value for name, value in metrics["per_class_accuracy"].items()}
        ious = {
            f"class_iou/{allowed(name)}": value
            for name, value in metrics.get("per_class_iou", {}).items()
            if value is not None
        }
        return single(plain | classes | ious)

    def diagnostics(self, cycle: str) -> Points:
        found = read_json(self.pipeline.path("diagnose", "diagnostics", cycle))
        return single(
            {
                f"diagnose/{key.replace('.', '/')}": value
                for key, value in flattened(found)
                if isinstance(value, int | float)
            }
        )

    def acquisition(self, cycle: str) -> dict[str, float]:
        spent = self.seconds("score", cycle) | self.seconds("select", cycle)
        return spent | ({"seconds/acquisition": sum(spent.values())} if len(spent) == 2 else {})

    def seconds(self, stage: str, cycle: str) -> dict[str, float]:
        """Timings belong to the files that they led to: they are logged with them, and no digest counts them."""
        note = state_directory.read_note("seconds", f"{stage}@{cycle}")
        return {f"seconds/{stage}": note["seconds"]} if note else {}


def curve_points(rows: list[dict[str, Any]]) -> Points:
    names = [name for name in tables.TRAINING.names if name != "epoch"]
    return {f"train/{name}": {int(row["epoch"]): float(row[name]) for row in rows} for name in names}


def single(values: dict[str, Any]) -> Points:
    return {key: {0: float(value)} for key, value in values.items()}


def allowed(name: str) -> str:
    """As MLflow spells a metric: a class may be called anything."""
    return re.sub(r"[^\w\-. ]", "_", name)


def flattened(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
