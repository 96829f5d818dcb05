"""Each scoring strategy on a pool small enough to know the answer."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.special import entr

from codline.acquisition.disagreement import TIE_WEIGHT
from codline.data.dense_outputs import IGNORE_INDEX
from codline.strategies.bald import Bald
from codline.strategies.base import Outputs, PoolChunk
from codline.strategies.cod import Cod
from codline.strategies.emaod import Emaod
from codline.strategies.entropy import Entropy
from codline.strategies.feature_dropout import FeatureDropout
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from codline.strategies.mc_dropout import McDropout
from codline.strategies.qbc import Qbc
from codline.strategies.random import Random
from codline.strategies.snapshot_committee import SnapshotCommittee
from codline.strategies.tod import Tod
from codline.strategies.true_loss import TrueLoss
from tests.pools import REFERENCES, outputs_from_probs

RNG = np.random.default_rng(0)
A, B, C = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
A_OR_B, UNIFORM = [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]


def make_chunk(
    now: list[list[float]], before: list[list[float]] | None = None, *, first_cycle: bool = False
) -> PoolChunk:
    references = dict.fromkeys(REFERENCES, outputs_from_probs(before or now))
    return PoolChunk(np.arange(len(now)), outputs_from_probs(now), references, first_cycle)


def test_entropy_is_highest_for_uniform_probabilities() -> None:
    assert Entropy().scores(make_chunk([A, A_OR_B, UNIFORM]), RNG) == pytest.approx([0, np.log(2), np.log(3)])


def test_margin_is_the_negative_gap_between_the_two_most_probable_classes() -> None:
    assert Margin().scores(make_chunk([A, A_OR_B, [0.2, 0.7, 0.1]]), RNG) == pytest.approx([-1, 0, -0.5])


def test_least_confidence_is_the_probability_of_all_but_the_most_probable_class() -> None:
    assert LeastConfidence().scores(make_chunk([A, A_OR_B, UNIFORM]), RNG) == pytest.approx([0, 1 / 2, 2 / 3])


def test_cod_is_the_distance_to_the_previous_outputs() -> None:
    chunk = make_chunk([A, A_OR_B, A], [A, A, B])
    assert Cod().scores(chunk, RNG) == pytest.approx([0, np.sqrt(0.5), np.sqrt(2)])


@pytest.mark.parametrize("strategy", [Emaod(), Tod()])
def test_emaod_and_tod_are_the_distance_to_their_reference_in_every_cycle(strategy: Emaod | Tod) -> None:
    chunk = make_chunk([A, A_OR_B, A], [A, A, B], first_cycle=True)
    assert strategy.scores(chunk, RNG) == pytest.approx([0, np.sqrt(0.5), np.sqrt(2)])


def test_cod_can_compare_logits() -> None:
    now, before = [[0.5, 0.3, 0.2]], [[0.25, 0.25, 0.5]]
    distance = np.linalg.norm(np.log(now) - np.log(before))
    assert Cod(outputs="logits").scores(make_chunk(now, before), RNG) == pytest.approx([distance])


@pytest.mark.parametrize(("rule", "sign"), [("largest", 1), ("smallest", -1), ("independent", -1), ("snapshot", 1)])
def test_cod_follows_its_first_cycle_rule(rule: str, sign: int) -> None:
    chunk = make_chunk([A, A_OR_B], [UNIFORM, UNIFORM], first_cycle=True)
    strategy = Cod.model_validate({"first_cycle": rule})
    assert strategy.scores(chunk, RNG) == pytest.approx([sign * np.sqrt(2 / 3), sign * np.sqrt(1 / 6)])


@pytest.mark.parametrize("outputs", ["probs", "logits"])
def test_cod_can_take_the_images_nearest_to_the_uniform_distribution_in_the_first_cycle(outputs: str) -> None:
    """Of logits, the mean over the classes is the nearest that gives every class the same probability."""
    probs = [[0.5, 0.3, 0.2], UNIFORM]
    values = np.array(probs[0]) if outputs == "probs" else np.log(probs[0])
    strategy = Cod.model_validate({"first_cycle": "uniform", "outputs": outputs})
    assert strategy.reference_models(first_cycle=True) == set()
    scores = strategy.scores(make_chunk(probs, first_cycle=True), RNG)
    assert scores == pytest.approx([-np.linalg.norm(values - values.mean()), 0])
    assert strategy.scores(make_chunk(probs, probs), RNG) == pytest.approx([0, 0])


def test_cod_can_be_random_in_the_first_cycle_only() -> None:
    strategy = Cod(first_cycle="random")
    scores = strategy.scores(make_chunk([A, A], first_cycle=True), np.random.default_rng(1))
    assert scores == pytest.approx(np.random.default_rng(1).random(2))
    assert strategy.scores(make_chunk([A, A]), RNG) == pytest.approx([0, 0])


def test_random_depends_on_the_generator_only() -> None:
    first, second = (
        Random().scores(make_chunk(probs), np.random.default_rng(7)) for probs in ([A, A], [UNIFORM, A_OR_B])
    )
    assert np.array_equal(first, second)
    assert first[0] != first[1]


def test_true_loss_is_the_cross_entropy() -> None:
    chunk = replace(make_chunk([A, A_OR_B, UNIFORM, [0.01, 0.98, 0.01]]), true_labels=np.array([0, 0, 2, 0]))
    assert TrueLoss().scores(chunk, RNG) == pytest.approx([0, np.log(2), np.log(3), np.log(100)])


def test_true_loss_ignores_pixels_without_a_class() -> None:
    quarter, half = [np.log(0.25), np.log(0.75)], [np.log(0.5), np.log(0.5)]
    logits = np.moveaxis(np.array([[[quarter, half]], [[half, half]]]), 3, 1)
    masks = np.array([[[0, 1]], [[IGNORE_INDEX, 1]]], np.uint8)
    chunk = PoolChunk(np.arange(2), Outputs(logits, np.exp(logits)), true_labels=masks)
    assert TrueLoss().scores(chunk, RNG) == pytest.approx([(np.log(4) + np.log(2)) / 2, np.log(2)])
    unlabeled = replace(chunk, true_labels=np.full_like(masks, IGNORE_INDEX))
    assert TrueLoss().scores(unlabeled, RNG).tolist() == [0, 0]


# Predictions of two dropout passes for one image.
AGREE, BOTH_UNCERTAIN, DISAGREE = [A, A], [A_OR_B, A_OR_B], [A, B]


def with_passes(*images: list[list[float]]) -> PoolChunk:
    """A chunk of images, each given as the predictions of its passes."""
    passes = iter(np.array(images).swapaxes(0, 1))
    return replace(make_chunk([image[0] for image in images]), dropout_probs=passes)


def test_mc_dropout_does_not_separate_uncertain_passes_from_disagreeing_ones() -> None:
    chunk = with_passes(AGREE, BOTH_UNCERTAIN, DISAGREE)
    assert McDropout().scores(chunk, RNG) == pytest.approx([0, np.log(2), np.log(2)])


def test_bald_scores_disagreeing_passes_only() -> None:
    assert Bald().scores(with_passes(AGREE, BOTH_UNCERTAIN, DISAGREE), RNG) == pytest.approx([0, 0, np.log(2)])


@pytest.mark.parametrize(("by", "other"), [("entropy", McDropout()), ("mutual_information", Bald())])
def test_feature_dropout_scores_passes_as_mc_dropout_and_bald_do(by: str, other: McDropout | Bald) -> None:
    strategy = FeatureDropout.model_validate({"by": by})
    ours, theirs = (one.scores(with_passes(AGREE, BOTH_UNCERTAIN, DISAGREE), RNG) for one in (strategy, other))
    assert np.array_equal(ours, theirs)
    assert (strategy.dropout_passes(), other.dropout_passes()) == ((25, 0.5), (25, None))


def test_bald_is_never_negative() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(10), 1000)
    scores = Bald().scores(PoolChunk(np.arange(1000), outputs_from_probs(probs), dropout_probs=iter([probs] * 25)), RNG)
    assert (scores >= 0).all()
    assert scores.max() < 1e-14


@pytest.mark.parametrize(("strategy", "expected"), [(McDropout(), np.log(2) * 3 / 4), (Bald(), np.log(2) / 2)])
def test_dropout_strategies_average_over_the_pixels(strategy: McDropout | Bald, expected: float) -> None:
    pixels = [AGREE, BOTH_UNCERTAIN, DISAGREE, DISAGREE]  # of one image of 2 x 2
    passes = iter(np.array(pixels).transpose(1, 2, 0).reshape(2, 1, 3, 2, 2))
    assert strategy.scores(replace(make_chunk([A]), dropout_probs=passes), RNG) == pytest.approx([expected])


@pytest.mark.parametrize("strategy", [McDropout(), Bald()])
def test_dropout_strategies_hold_at_most_two_passes_in_memory(strategy: McDropout | Bald) -> None:
    alive, peaks = 0, list[int]()

    def count_freed() -> None:
        nonlocal alive
        alive -= 1

    def make_passes(count: int) -> Iterator[np.ndarray]:
        nonlocal alive
        for _ in range(count):
            probs = np.full((4, 3), 1 / 3)
            weakref.finalize(probs, count_freed)
            alive += 1
            peaks.append(alive)
            yield probs
            del probs

    for count in (3, 100):
        peaks.clear()
        strategy.scores(replace(make_chunk([UNIFORM] * 4), dropout_probs=make_passes(count)), RNG)
        assert (len(peaks), max(peaks), alive) == (count, 2, 0)


def make_committee(*members: list[list[float]]) -> PoolChunk:
    """A chunk with the predictions of this cycle's model and of the others, as trained members and as snapshots."""
    current, *others = (outputs_from_probs(probs) for probs in members)
    references = {key: outputs for i, outputs in enumerate(others, 1) for key in (i, f"member.{i}")}
    return PoolChunk(np.arange(len(members[0])), current, references)


@pytest.mark.parametrize(
    ("by", "expected"),
    [("vote_entropy", [0, entr([1 / 3, 2 / 3]).sum(), np.log(3)]), ("variation_ratio", [0, 1 / 3, 2 / 3])],
    ids=["entropy", "ratio"],
)
def test_qbc_scores_the_disagreement_of_the_votes(by: str, expected: list[float]) -> None:
    committee = make_committee([A, A, A], [A, B, B], [A, A, C])
    for strategy in (Qbc.model_validate({"by": by}), SnapshotCommittee.model_validate({"by": by, "members": [1, 2]})):
        assert strategy.scores(committee, RNG) == pytest.approx(expected)


def test_qbc_can_break_ties_at_random() -> None:
    committee = make_committee([A] * 50 + [A], [A] * 50 + [B], [A] * 50 + [A])
    first, second = (Qbc(ties="random").scores(committee, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.argmax(first) == np.argmax(second) == 50
    assert np.argmax(first[:50]) != np.argmax(second[:50])
    assert first == pytest.approx([0] * 50 + [1 / 3], abs=2e-6)


def test_qbc_breaks_ties_by_mean_entropy_without_passing_a_more_divided_vote() -> None:
    hesitant = [0.4, 0.3, 0.3]
    committee = make_committee([A, hesitant, A], [A, hesitant, B], [A, hesitant, A])
    agreed, uncertain, divided = Qbc().scores(committee, RNG)
    assert 0 == agreed < uncertain < 1e-5 < divided


def test_qbc_splits_the_vote_of_a_member_with_two_most_probable_classes() -> None:
    scores = Qbc(members=1).scores(make_committee([A_OR_B] * 3, [A, B, C]), RNG)
    assert scores == pytest.approx([1 / 4, 1 / 4, 1 / 2], abs=1e-5)


def test_qbc_votes_on_each_pixel() -> None:
    one, two = (np.array([pixels]).swapaxes(1, 2).reshape(1, 3, 1, 2) for pixels in ([A, A], [A, B]))
    chunk = PoolChunk(np.arange(1), Outputs(one, one), {"member.1": Outputs(two, two)})
    assert Qbc(by="vote_entropy", members=1).scores(chunk, RNG) == pytest.approx([np.log(2) / 2])


@pytest.mark.parametrize("size", range(2, 10))
def test_qbc_tie_weight_is_smaller_than_the_gap_between_any_two_votes(size: int) -> None:
    ballots = combinations_with_replacement(range(size), size)
    shares = np.unique([np.sort(np.bincount(ballot, minlength=size) / size) for ballot in ballots], axis=0)
    gaps = np.diff(np.sort(entr(shares).sum(1)))
    assert gaps[gaps > 1e-12].min() > TIE_WEIGHT * np.log(1000)
