"""Metrics agree with scikit-learn and torchmetrics, the calibration error bit for bit."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, recall_score
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from codline.data.output_store import softmax
from codline.evaluation.metrics import calibration_error, classification_metrics
from codline.learning.image_losses import image_losses

CLASSES = ["ape", "bee", "cat", "dog"]


@pytest.fixture
def outputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300, np.int32)
    logits = rng.normal(size=(300, 4)) + 1.5 * np.eye(4)[labels]
    return logits.astype(np.float32), labels


def calibration_error_by_definition(probs: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """The gap between confidence and accuracy in each bin of confidence, weighted by the bin's share of images."""
    confidence, is_correct = probs.max(1), probs.argmax(1) == labels
    bin_of = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = [
        (bin_of == b).mean() * abs(confidence[bin_of == b].mean() - is_correct[bin_of == b].mean())
        for b in range(bins)
        if (bin_of == b).any()
    ]
    return float(sum(gaps))


def test_classification_metrics_agree_with_scikit_learn(outputs: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = outputs
    metrics, details = classification_metrics(logits, labels, CLASSES, bins=15)
    predicted = logits.argmax(1)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert metrics["loss"] == pytest.approx(log_loss(labels, softmax(logits)))
    recalls = recall_score(labels, predicted, average=None)
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert metrics["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert details["per_class_accuracy"] == pytest.approx(dict(zip(CLASSES, recalls, strict=True)))
    f1 = f1_score(labels, predicted, average=None)
    assert details["per_class_f1"] == pytest.approx(dict(zip(CLASSES, f1, strict=True)))
    expected = calibration_error_by_definition(softmax(logits), labels, 15)
    assert metrics["calibration_error"] == pytest.approx(expected, abs=1e-6)


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Logits, labels, classes and bins; often with ties, certain predictions, absent classes and empty bins."""
    classes, bins, count = int(rng.integers(2, 12)), int(rng.integers(1, 40)), int(rng.integers(1, 3000))
    labels = rng.integers(0, rng.integers(1, classes + 1), count, np.int32)
    logits = rng.normal(size=(count, classes)) * rng.choice([0.0, 0.1, 1.0, 10.0, 1000.0])
    logits += rng.choice([0.0, 2.0]) * np.eye(classes)[labels]
    decimals = rng.choice([0, 1, 12])  # rounding to integers makes ties
    return np.round(logits, decimals).astype(np.float32), labels, classes, bins


@pytest.mark.parametrize("seed", range(200))
def test_classification_metrics_are_those_of_torchmetrics_and_of_scikit_learn_over_the_classes_present(
    seed: int,
) -> None:
    logits, labels, classes, bins = random_case(np.random.default_rng(seed))
    metrics, details = classification_metrics(logits, labels, list(map(str, range(classes))), bins)
    preds, target = torch.from_numpy(logits), torch.from_numpy(labels).long()
    per_class, present = multiclass_accuracy(preds, target, classes, average="none"), np.unique(labels)
    assert metrics["accuracy"] == pytest.approx(float(multiclass_accuracy(preds, target, classes, average="micro")))
    expected_by_class = [float(per_class[i]) if i in present else None for i in range(classes)]
    assert list(details["per_class_accuracy"].values()) == pytest.approx(expected_by_class)
    assert [i for i, count in enumerate(details["per_class_images"].values()) if count] == present.tolist()
    predicted = preds.argmax(1).numpy()
    assert metrics["balanced_accuracy"] == pytest.approx(
        recall_score(labels, predicted, labels=present, average="macro")
    )
    assert metrics["macro_f1"] == pytest.approx(f1_score(labels, predicted, labels=present, average="macro"))
    expected = multiclass_calibration_error(preds.softmax(1), target, classes, n_bins=bins)
    assert metrics["calibration_error"] == float(expected)


@pytest.mark.parametrize("bins", [1, 2, 3, 10, 15, 100])
def test_calibration_error_on_the_edges_of_bins_is_that_of_torchmetrics(bins: int) -> None:
    edges = torch.linspace(0, 1, bins + 1)
    confidence = torch.cat(
        [edges, torch.nextafter(edges, torch.tensor(0.0)), torch.nextafter(edges, torch.tensor(1.0))]
    )
    confidence = confidence[(confidence >= 0.5) & (confidence <= 1)]
    probs, labels = torch.stack([confidence, 1 - confidence], dim=1), torch.arange(len(confidence)) % 2
    expected = multiclass_calibration_error(probs, labels, num_classes=2, n_bins=bins)
    assert calibration_error(probs, labels, bins) == float(expected)


def test_softmax_is_exact_where_floats_would_overflow() -> None:
    probs = softmax(np.array([[1000.0, 0.0], [-1000.0, -1000.0], [0.0, np.log(3)]], np.float32))
    assert probs == pytest.approx(np.array([[1, 0], [0.5, 0.5], [0.25, 0.75]]), abs=1e-7)
    assert probs.dtype == np.float64


def test_image_losses_are_the_cross_entropy_of_each_row(outputs: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = outputs
    assert image_losses(logits, labels) == pytest.approx(-np.log(softmax(logits)[np.arange(300), labels]))
    assert image_losses(np.array([[0.0, 1000.0]]), np.array([0])) == pytest.approx([1000])
