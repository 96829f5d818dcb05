"""The learning curve of a campaign: test metrics of the cycles that have been evaluated so far."""

from collections.abc import Iterable
from typing import Any

from codline.core.files import read_json
from codline.runtime.pipeline import Pipeline


def evaluated_metrics(pipeline: Pipeline, cycles: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """{cycle: content of its metrics.json}, of `cycles` or all of the campaign, in their order."""
    chosen = pipeline.cycles if cycles is None else cycles
    paths = {cycle: pipeline.path("evaluate", "metrics", cycle) for cycle in chosen}
    return {cycle: read_json(path) for cycle, path in paths.items() if path.exists()}
