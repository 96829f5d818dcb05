"""Metrics agree with scikit-learn and with definitions written out."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, recall_score

from codline.acquisition.image_losses import losses
from codline.data.output_store import softmax
from codline.evaluation.metrics import classification

CLASSES = ["ape", "bee", "cat", "dog"]


@pytest.fixture
def outputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300, np.int32)
    logits = rng.normal(size=(300, 4)) + 1.5 * np.eye(4)[labels]
    return logits.astype(np.float32), labels


def calibration_error(probs: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """The gap between confidence and accuracy in each bin of confidence, weighted by the bin's share."""
    sure, right = probs.max(1), probs.argmax(1) == labels
    bin_of = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    gaps = [
        (bin_of == b).mean() * abs(sure[bin_of == b].mean() - right[bin_of == b].mean())
        for b in range(bins)
        if (bin_of == b).any()
    ]
    return float(sum(gaps))


def test_metrics_agree_with_scikit_learn(outputs: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = outputs
    found = classification(logits, labels, CLASSES, bins=15)
    guessed = logits.argmax(1)
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, guessed))
    assert found["loss"] == pytest.approx(log_loss(labels, softmax(logits)))
    recalls = recall_score(labels, guessed, average=None)
    assert found["per_class_accuracy"] == pytest.approx(dict(zip(CLASSES, recalls, strict=True)))
    assert found["calibration_error"] == pytest.approx(calibration_error(softmax(logits), labels, 15), abs=1e-6)


def test_a_class_that_the_test_split_lacks_counts_as_zero(outputs: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = outputs
    rows = labels != 2
    assert classification(logits[rows], labels[rows], CLASSES, bins=5)["per_class_accuracy"]["cat"] == 0


def test_softmax_is_exact_where_floats_would_overflow() -> None:
    probs = softmax(np.array([[1000.0, 0.0], [-1000.0, -1000.0], [0.0, np.log(3)]], np.float32))
    assert probs == pytest.approx(np.array([[1, 0], [0.5, 0.5], [0.25, 0.75]]), abs=1e-7)
    assert probs.dtype == np.float64


def test_losses_are_the_cross_entropy_of_each_row(outputs: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = outputs
    assert losses(logits, labels) == pytest.approx(-np.log(softmax(logits)[np.arange(300), labels]))
    assert losses(np.array([[0.0, 1000.0]]), np.array([0])) == pytest.approx([1000])
