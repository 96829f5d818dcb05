"""The primary metric: mean IoU for segmentation; models are chosen by validation, never by the test metric."""

import pytest
from hypothesis import given, strategies as st

from codline.core.primary_metric import best_cycle, primary_metric, selection_value

CLASSIFICATION = {"labels": 9, "accuracy": 0.921, "accuracy_low": 0.884, "accuracy_high": 0.947}
SEGMENTATION = {"accuracy": 0.9, "mean_iou": 0.45, "mean_iou_low": 0.4, "mean_iou_high": 0.5}


def test_primary_metric_is_the_accuracy_of_classification_and_the_mean_iou_of_segmentation() -> None:
    assert primary_metric(CLASSIFICATION) == ("accuracy", 0.921, 0.884, 0.947)
    assert primary_metric(SEGMENTATION) == ("mean IoU", 0.45, 0.4, 0.5)
    assert str(primary_metric(CLASSIFICATION)) == "92.1% [88.4, 94.7]"


def test_selection_value_is_the_primary_metric_on_validation_images() -> None:
    assert selection_value(CLASSIFICATION | {"validation_accuracy": 0.8}) == 0.8
    assert selection_value(SEGMENTATION | {"validation_accuracy": 0.8, "validation_mean_iou": 0.3}) == 0.3
    assert selection_value(CLASSIFICATION | {"validation_accuracy": None}) is selection_value(SEGMENTATION) is None


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 0.7]), st.floats(0, 1)), min_size=1, max_size=6))
def test_best_cycle_has_the_highest_validation_metric_and_fewest_labels_whatever_the_test_metric(
    values: list[tuple[float, float]],
) -> None:
    cycles = {
        f"c{i}": {"labels": 10 * i, "accuracy": test, "validation_accuracy": validation}
        for i, (validation, test) in enumerate(values)
    }
    validations = [validation for validation, _ in values]
    assert best_cycle(cycles) == f"c{validations.index(max(validations))}"


@pytest.mark.parametrize("missing", [["c1", "c2"], ["c1"]])
def test_best_cycle_is_the_last_one_without_validation_images(missing: list[str]) -> None:
    cycles = {
        name: {"labels": 1, "accuracy": test, "validation_accuracy": 0.9} for name, test in (("c1", 1), ("c2", 0))
    }
    for name in missing:
        del cycles[name]["validation_accuracy"]
    assert best_cycle(cycles) == "c2"
