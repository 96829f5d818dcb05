"""What every annotator promises: one label within the classes for every image asked, the same for the same random stream."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.annotators.base import Annotator, Answers, Question
from codline.cli.plugins import members
from tests.families import spelled, variants

each_annotator = pytest.mark.parametrize("annotator", variants("annotators"), ids=spelled)
each_noisy = pytest.mark.parametrize("kind", [kind for kind in members("annotators") if "noise" in kind.model_fields])
truths = st.integers(2, 20).flatmap(
    lambda classes: st.tuples(st.just(classes), st.lists(st.integers(0, classes - 1), max_size=60))
)


def with_noise(kind: type[Annotator], noise: float) -> Annotator:
    return kind.model_validate({"noise": noise})


def answers(annotator: Annotator, truth: list[int], classes: int) -> Answers:
    question = Question(
        "c1", np.arange(len(truth)), np.array(truth, np.int32), [str(number) for number in range(classes)]
    )
    return annotator.answer(question, np.random.default_rng(5))


@pytest.mark.parametrize("kind", members("annotators"))
def test_an_annotator_is_named_like_its_file(kind: type[Annotator]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_annotator
@given(truths)
def test_every_question_gets_a_label_within_the_classes(annotator: Annotator, asked: tuple[int, list[int]]) -> None:
    classes, truth = asked
    given_labels = answers(annotator, truth, classes)
    assert given_labels.labels.shape == (len(truth),)
    assert given_labels.labels.dtype == np.int32
    assert all(0 <= label < classes for label in given_labels.labels)
    assert given_labels.wrong == (given_labels.labels != np.array(truth, np.int32)).sum()


@each_annotator
def test_the_same_stream_gives_the_same_answers(annotator: Annotator) -> None:
    one, again = (answers(annotator, [3, 1, 2] * 10, 4) for _ in range(2))
    assert np.array_equal(one.labels, again.labels)


@each_noisy
@given(truths)
def test_without_noise_the_answer_is_the_truth(kind: type[Annotator], asked: tuple[int, list[int]]) -> None:
    classes, truth = asked
    assert answers(with_noise(kind, 0.0), truth, classes).labels.tolist() == truth


@each_noisy
@given(truths)
def test_with_all_noise_the_answer_is_never_the_truth(kind: type[Annotator], asked: tuple[int, list[int]]) -> None:
    classes, truth = asked
    found = answers(with_noise(kind, 1.0), truth, classes)
    assert not (found.labels == np.array(truth, np.int32)).any()
    assert found.wrong == len(truth)


@each_noisy
def test_noise_is_the_share_of_mistakes_and_they_spread_over_the_other_classes(kind: type[Annotator]) -> None:
    found = answers(with_noise(kind, 0.3), [0] * 10_000, 5)
    counts = np.bincount(found.labels, minlength=5) / 10_000
    assert counts == pytest.approx([0.7, 0.075, 0.075, 0.075, 0.075], abs=0.015)
