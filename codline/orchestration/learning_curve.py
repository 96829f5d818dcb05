"""The learning curve of a campaign: test metrics of the cycles that have been evaluated so far."""

from typing import Any

from codline.core.files import read_json
from codline.runtime.pipeline import Pipeline


def evaluated_metrics(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """{cycle: content of its metrics.json}, in the order of the campaign."""
    paths = {cycle: pipeline.path("evaluate", "metrics", cycle) for cycle in pipeline.cycles}
    return {cycle: read_json(path) for cycle, path in paths.items() if path.exists()}
