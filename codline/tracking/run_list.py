"""Views of MLflow's run list: which columns it shows. By default it shows neither metrics nor parameters.

MLflow's page keeps a saved view as a tag of the experiment. A view that a user has changed is left alone.
"""

import json
from typing import Any

METRICS = (
    "labels", "accuracy", "accuracy_low", "accuracy_high", "mean_iou", "mean_iou_low", "mean_iou_high",
)  # fmt: skip
BEST_METRICS = ("best_accuracy", "best_mean_iou")
PARAMS = ("dataset", "strategy", "seed")
RUN_NAME, DURATION = "attributes.`Run Name`", "duration"  # ids of columns in MLflow's page
VIEW = "mlflow.sharedViewState."  # followed by the view's id, which is also in its address


def saved_views() -> dict[str, str]:
    """{tag: value}. The cycles of all campaigns, newest first; campaigns, with the cycles nested in them."""
    # By `start_time` MLflow would nest the cycles in their campaigns; this is another name for it.
    newest_first = {"orderByKey": "attributes.`Created`", "orderByAsc": False}
    only_cycles = {"searchFilter": "tags.`codline.cycle` LIKE 'c%'"}
    cycles = shown_columns(METRICS, ("cycle", *PARAMS)) | newest_first | only_cycles
    campaigns = shown_columns(METRICS + BEST_METRICS, PARAMS)
    return {f"{VIEW}cycles": saved_view("Cycles", cycles), f"{VIEW}campaigns": saved_view("Campaigns", campaigns)}


def saved_view(name: str, state: dict[str, Any]) -> str:
    return json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})


def shown_columns(metrics: tuple[str, ...], params: tuple[str, ...]) -> dict[str, Any]:
    """Columns that the run has no value for are not shown, such as mean IoU of a classification."""
    columns = [DURATION, *(f"metrics.`{name}`" for name in metrics), *(f"params.`{name}`" for name in params)]
    return {"selectedColumns": columns, "columnOrder": [RUN_NAME, *columns], "columnWidths": {RUN_NAME: 280}}
