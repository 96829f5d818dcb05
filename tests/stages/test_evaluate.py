"""evaluate: metrics agree with scikit-learn on the predictions written next to them."""

import csv
import json

import pytest
from sklearn.metrics import accuracy_score, recall_score

from codline.data import tables
from tests.workspace import Workspace


def test_evaluate_writes_metrics_that_agree_with_scikit_learn_on_the_predictions(workspace: Workspace) -> None:
    metrics = json.loads(workspace.path("evaluate", "metrics", "c3").read_text())
    with workspace.path("evaluate", "predictions", "c3").open(newline="") as file:
        rows = list(csv.DictReader(file))
    actual, predicted = ([row[name] for row in rows] for name in ("actual", "predicted"))
    assert metrics["accuracy"] == pytest.approx(accuracy_score(actual, predicted))
    assert list(metrics["per_class_accuracy"].values()) == pytest.approx(recall_score(actual, predicted, average=None))
    truth = tables.read_table(workspace.path("evaluate", "test", "c3"), tables.TEST).to_pylist()
    assert [(int(row["id"]), row["actual"]) for row in rows] == [(row["id"], str(row["label"])) for row in truth]


def test_evaluate_writes_the_number_of_labels_that_the_model_was_trained_on(workspace: Workspace) -> None:
    for cycle in ("c1", "c2", "c3"):
        labels = tables.read_table(workspace.path("train", "labeled", cycle), tables.LABELED).num_rows
        assert json.loads(workspace.path("evaluate", "metrics", cycle).read_text())["labels"] == labels


def test_evaluate_shows_that_a_campaign_learns(workspace: Workspace) -> None:
    first, last = (
        json.loads(workspace.path("evaluate", "metrics", cycle).read_text())["accuracy"] for cycle in ("c1", "c3")
    )
    assert last > first > 0.1
