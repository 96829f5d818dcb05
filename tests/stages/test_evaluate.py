"""evaluate: metrics agree with scikit-learn on the predictions written next to them."""

import csv
import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, recall_score

from codline.core.errors import DataError
from codline.data import tables
from tests.workspace import Workspace


def read_result(workspace: Workspace, name: str, cycle: str = "c3") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(workspace.path("evaluate", name, cycle).read_text())
    return content


def read_predictions(workspace: Workspace) -> list[dict[str, str]]:
    with workspace.path("evaluate", "predictions", "c3").open(newline="") as file:
        return list(csv.DictReader(file))


def test_evaluate_writes_metrics_that_agree_with_scikit_learn_on_the_predictions(workspace: Workspace) -> None:
    metrics, details = read_result(workspace, "metrics"), read_result(workspace, "details")
    rows = read_predictions(workspace)
    actual, predicted = ([row[name] for row in rows] for name in ("actual", "predicted"))
    assert metrics["accuracy"] == pytest.approx(accuracy_score(actual, predicted))
    hits = sum(map(str.__eq__, actual, predicted))
    interval = stats.binomtest(hits, len(rows)).proportion_ci(0.95, method="wilson")
    assert [metrics["accuracy_low"], metrics["accuracy_high"]] == pytest.approx([interval.low, interval.high])
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(actual, predicted))
    assert metrics["macro_f1"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    assert list(details["per_class_accuracy"].values()) == pytest.approx(recall_score(actual, predicted, average=None))
    truth = tables.read_table(workspace.path("evaluate", "test", "c3"), tables.TEST).to_pylist()
    assert [(int(row["id"]), row["actual"]) for row in rows] == [(row["id"], str(row["label"])) for row in truth]


def test_evaluate_writes_few_numbers_into_metrics_and_the_others_into_details(workspace: Workspace) -> None:
    metrics, details = read_result(workspace, "metrics"), read_result(workspace, "details")
    assert len(metrics) < 12
    assert all(isinstance(value, int | float) for value in metrics.values())
    assert details["test_images"] == len(read_predictions(workspace)) == sum(details["per_class_images"].values())


def test_evaluate_measures_the_validation_accuracy_on_the_validation_images_alone(workspace: Workspace) -> None:
    expected = read_result(workspace, "metrics")["validation_accuracy"]
    validation, test = (workspace.path("evaluate", name, "c3") for name in ("validation", "test"))
    validation.replace(test.with_suffix(".kept"))
    tables.write_table(tables.read_table(test, tables.TEST), tables.VALIDATION, validation)
    test.with_suffix(".kept").replace(test)
    workspace.run("evaluate", "c3")
    assert read_result(workspace, "metrics")["accuracy"] == pytest.approx(expected)


def test_evaluate_works_without_validation_images(workspace: Workspace) -> None:
    before = read_result(workspace, "metrics")
    empty = [np.empty(0, np.int64), np.empty(0, np.int32)]
    tables.write_columns(empty, tables.VALIDATION, workspace.path("evaluate", "validation", "c3"))
    workspace.run("evaluate", "c3")
    assert read_result(workspace, "metrics") == {key: before[key] for key in before if key != "validation_accuracy"}
    assert read_result(workspace, "details")["validation_images"] == 0


def test_evaluate_refuses_an_empty_test_split(workspace: Workspace) -> None:
    empty = [np.empty(0, np.int64), np.empty(0, np.int32)]
    tables.write_columns(empty, tables.TEST, workspace.path("evaluate", "test", "c3"))
    with pytest.raises(DataError, match=r"test.parquet: has no rows, expected at least one"):
        workspace.run("evaluate", "c3")


def test_predictions_have_the_first_file_name_of_an_image_that_has_names(workspace: Workspace) -> None:
    ids = [int(row["id"]) for row in read_predictions(workspace)]
    named = [ids[2], ids[0], ids[2], ids[0]]
    names = ["b, c.png", "z.png", "a.png", "y.png"]
    tables.write_columns([named, names], tables.FILES, workspace.path("evaluate", "files", "c3"))
    workspace.run("evaluate", "c3")
    rows = read_predictions(workspace)
    assert [row["file"] for row in rows] == ["z.png", "", "b, c.png", *[""] * (len(ids) - 3)]
    assert list(rows[0]) == ["id", "file", "actual", "predicted", "confidence"]


def test_evaluate_writes_the_number_of_labels_that_the_model_was_trained_on(workspace: Workspace) -> None:
    for cycle in ("c1", "c2", "c3"):
        labels = tables.read_table(workspace.path("train", "labeled", cycle), tables.LABELED).num_rows
        assert json.loads(workspace.path("evaluate", "metrics", cycle).read_text())["labels"] == labels


def test_evaluate_shows_that_a_campaign_learns(workspace: Workspace) -> None:
    first, last = (
        json.loads(workspace.path("evaluate", "metrics", cycle).read_text())["accuracy"] for cycle in ("c1", "c3")
    )
    assert last > first > 0.1
