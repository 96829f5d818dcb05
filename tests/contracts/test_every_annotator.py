"""Contract of annotators: one valid label for every requested image, and the same labels for the same random stream."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.annotators.base import AnnotationRequest, Annotations, Annotator
from codline.cli.plugins import members
from tests.families import variant_id, variants

# Those of people come from files: tests/stages/test_annotate.py.
each_annotator = pytest.mark.parametrize(
    "annotator", [each for each in variants("annotators") if each.needs_true_labels], ids=variant_id
)
each_noisy_kind = pytest.mark.parametrize(
    "kind", [kind for kind in members("annotators") if "noise" in kind.model_fields]
)
# Number of classes, and true labels.
tasks = st.integers(2, 20).flatmap(
    lambda classes: st.tuples(st.just(classes), st.lists(st.integers(0, classes - 1), max_size=60))
)


def with_noise(kind: type[Annotator], noise: float) -> Annotator:
    return kind.model_validate({"noise": noise})


def annotate(annotator: Annotator, true_labels: list[int], classes: int) -> Annotations:
    names = [str(number) for number in range(classes)]
    request = AnnotationRequest("c1", np.arange(len(true_labels)), np.array(true_labels, np.int32), names)
    return annotator.annotate(request, np.random.default_rng(5))


@pytest.mark.parametrize("kind", members("annotators"))
def test_annotator_is_named_like_its_module(kind: type[Annotator]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_annotator
@given(tasks)
def test_annotate_gives_every_image_a_valid_label(annotator: Annotator, task: tuple[int, list[int]]) -> None:
    classes, true_labels = task
    annotations = annotate(annotator, true_labels, classes)
    assert annotations.labels.shape == (len(true_labels),)
    assert annotations.ids.tolist() == list(range(len(true_labels)))
    assert annotations.names == [annotator.name] * len(true_labels)
    assert annotations.labels.dtype == np.int32
    assert all(0 <= label < classes for label in annotations.labels)
    assert annotations.wrong_count == (annotations.labels != np.array(true_labels, np.int32)).sum()


@each_annotator
def test_annotate_gives_the_same_labels_for_the_same_random_stream(annotator: Annotator) -> None:
    first, second = (annotate(annotator, [3, 1, 2] * 10, 4) for _ in range(2))
    assert np.array_equal(first.labels, second.labels)


@each_noisy_kind
@given(tasks)
def test_annotate_without_noise_returns_the_true_labels(kind: type[Annotator], task: tuple[int, list[int]]) -> None:
    classes, true_labels = task
    assert annotate(with_noise(kind, 0.0), true_labels, classes).labels.tolist() == true_labels


@each_noisy_kind
@given(tasks)
def test_annotate_with_noise_1_returns_only_wrong_labels(kind: type[Annotator], task: tuple[int, list[int]]) -> None:
    classes, true_labels = task
    annotations = annotate(with_noise(kind, 1.0), true_labels, classes)
    assert not (annotations.labels == np.array(true_labels, np.int32)).any()
    assert annotations.wrong_count == len(true_labels)


@each_noisy_kind
def test_noise_is_the_share_of_mistakes_which_spread_over_the_other_classes(kind: type[Annotator]) -> None:
    labels = annotate(with_noise(kind, 0.3), [0] * 10_000, 5).labels
    shares = np.bincount(labels, minlength=5) / 10_000
    assert shares == pytest.approx([0.7, 0.075, 0.075, 0.075, 0.075], abs=0.015)
