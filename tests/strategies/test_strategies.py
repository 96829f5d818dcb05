"""Each strategy on a pool small enough to know the answer."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.special import entr

from codline.data.dense_outputs import NOTHING
from codline.strategies.bald import Bald
from codline.strategies.base import Outputs, Pool
from codline.strategies.cod import Cod
from codline.strategies.emaod import Emaod
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from codline.strategies.mc_dropout import McDropout
from codline.strategies.qbc import TIE, Qbc
from codline.strategies.random import Random
from codline.strategies.tod import Tod
from codline.strategies.true_loss import TrueLoss

RNG = np.random.default_rng(0)
SURE, TORN, EVEN = [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]


def pool_of(now: list[list[float]], before: list[list[float]] | None = None, *, first_cycle: bool = False) -> Pool:
    return Pool(
        np.arange(len(now)),
        said(now),
        dict.fromkeys(("previous", "average", "independent", 100), said(before or now)),
        first_cycle,
    )


def said(probs: list[list[float]]) -> Outputs:
    with np.errstate(divide="ignore"):
        return Outputs(np.log(probs), np.array(probs))


def test_entropy_wants_the_most_evenly_spread() -> None:
    assert Entropy().scores(pool_of([SURE, TORN, EVEN]), RNG) == pytest.approx([0, np.log(2), np.log(3)])


def test_margin_wants_the_smallest_gap_between_the_two_likeliest() -> None:
    assert Margin().scores(pool_of([SURE, TORN, [0.2, 0.7, 0.1]]), RNG) == pytest.approx([-1, 0, -0.5])


def test_least_confidence_wants_the_least_likely_favourite() -> None:
    assert LeastConfidence().scores(pool_of([SURE, TORN, EVEN]), RNG) == pytest.approx([0, 1 / 2, 2 / 3])


def test_cod_wants_what_moved_most_since_the_last_cycle() -> None:
    pool = pool_of([SURE, TORN, SURE], [SURE, SURE, [0.0, 1.0, 0.0]])
    assert Cod().scores(pool, RNG) == pytest.approx([0, np.sqrt(0.5), np.sqrt(2)])


def test_true_loss_wants_what_the_model_is_most_wrong_about() -> None:
    pool = pool_of([SURE, TORN, EVEN, [0.01, 0.98, 0.01]])
    assert TrueLoss().scores(replace(pool, truth=np.array([0, 0, 2, 0])), RNG) == pytest.approx(
        [0, np.log(2), np.log(3), np.log(100)]
    )


def test_true_loss_counts_the_pixels_that_have_a_class_alone() -> None:
    quarter, half = [np.log(0.25), np.log(0.75)], [np.log(0.5), np.log(0.5)]
    logits = np.moveaxis(np.array([[[quarter, half]], [[half, half]]]), 3, 1)
    masks = np.array([[[0, 1]], [[NOTHING, 1]]], np.uint8)
    pool = Pool(np.arange(2), Outputs(logits, np.exp(logits)), truth=masks)
    assert TrueLoss().scores(pool, RNG) == pytest.approx([(np.log(4) + np.log(2)) / 2, np.log(2)])
    nobody_knows = replace(pool, truth=np.full_like(masks, NOTHING))
    assert TrueLoss().scores(nobody_knows, RNG).tolist() == [0, 0]


@pytest.mark.parametrize("strategy", [Emaod(), Tod()])
def test_emaod_and_tod_want_what_moved_most_since_their_other_model(strategy: Emaod | Tod) -> None:
    pool = pool_of([SURE, TORN, SURE], [SURE, SURE, [0.0, 1.0, 0.0]], first_cycle=True)
    assert strategy.scores(pool, RNG) == pytest.approx([0, np.sqrt(0.5), np.sqrt(2)])


def test_logits_can_be_compared_instead_of_probabilities() -> None:
    now, before = [[0.5, 0.3, 0.2]], [[0.25, 0.25, 0.5]]
    apart = np.linalg.norm(np.log(now) - np.log(before))
    assert Cod(outputs="logits").scores(pool_of(now, before), RNG) == pytest.approx([apart])


@pytest.mark.parametrize(("rule", "sign"), [("largest", 1), ("smallest", -1), ("independent", -1), ("snapshot", 1)])
def test_cod_takes_its_first_cycle_the_way_it_is_told(rule: str, sign: int) -> None:
    pool = pool_of([SURE, TORN], [EVEN, EVEN], first_cycle=True)
    strategy = Cod.model_validate({"first_cycle": rule})
    assert strategy.scores(pool, RNG) == pytest.approx([sign * np.sqrt(2 / 3), sign * np.sqrt(1 / 6)])


def test_cod_can_abstain_in_its_first_cycle_alone() -> None:
    strategy = Cod(first_cycle="random")
    drawn = strategy.scores(pool_of([SURE, SURE], first_cycle=True), np.random.default_rng(1))
    assert drawn == pytest.approx(np.random.default_rng(1).random(2))
    assert strategy.scores(pool_of([SURE, SURE]), RNG) == pytest.approx([0, 0])


def test_random_asks_the_generator_alone() -> None:
    first, second = (Random().scores(pool_of(rows), np.random.default_rng(7)) for rows in ([SURE, SURE], [EVEN, TORN]))
    assert np.array_equal(first, second)
    assert first[0] != first[1]


# Three images under two passes: both passes sure and at one, both torn, each sure of something else.
AGREED, TORN_ALIKE, QUARREL = [SURE, SURE], [TORN, TORN], [SURE, [0.0, 1.0, 0.0]]


def sampled(*images: list[list[float]]) -> Pool:
    """Of each image, what every pass says."""
    return replace(pool_of([image[0] for image in images]), samples=iter(np.array(images).swapaxes(0, 1)))


def test_mc_dropout_wants_the_most_evenly_spread_mean_whether_passes_are_torn_or_at_odds() -> None:
    assert McDropout().scores(sampled(AGREED, TORN_ALIKE, QUARREL), RNG) == pytest.approx([0, np.log(2), np.log(2)])


def test_bald_wants_passes_at_odds_and_not_passes_torn_alike() -> None:
    assert Bald().scores(sampled(AGREED, TORN_ALIKE, QUARREL), RNG) == pytest.approx([0, 0, np.log(2)])


def test_information_that_rounding_makes_negative_is_none() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(10), 1000)
    scores = Bald().scores(Pool(np.arange(1000), Outputs(np.log(probs), probs), samples=iter([probs] * 25)), RNG)
    assert (scores >= 0).all()
    assert scores.max() < 1e-14


@pytest.mark.parametrize(("strategy", "expected"), [(McDropout(), np.log(2) * 3 / 4), (Bald(), np.log(2) / 2)])
def test_dense_passes_are_compared_pixel_by_pixel(strategy: McDropout | Bald, expected: float) -> None:
    pixels = [AGREED, TORN_ALIKE, QUARREL, QUARREL]  # of a single image of two by two
    passes = iter(np.array(pixels).transpose(1, 2, 0).reshape(2, 1, 3, 2, 2))
    assert strategy.scores(replace(pool_of([SURE]), samples=passes), RNG) == pytest.approx([expected])


@pytest.mark.parametrize("strategy", [McDropout(), Bald()])
def test_passes_are_let_go_as_they_are_summed_up(strategy: McDropout | Bald) -> None:
    alive, most = 0, []

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def passes(count: int) -> Iterator[np.ndarray]:
        nonlocal alive
        for _ in range(count):
            probs = np.full((4, 3), 1 / 3)
            weakref.finalize(probs, gone)
            alive += 1
            most.append(alive)
            yield probs
            del probs

    for count in (3, 100):
        most.clear()
        strategy.scores(replace(pool_of([EVEN] * 4), samples=passes(count)), RNG)
        assert (len(most), max(most), alive) == (count, 2, 0)  # the last one, and the one that takes its place


def committee(*members: list[list[float]]) -> Pool:
    """What this cycle's model and its snapshots say."""
    now, *before = (said(probs) for probs in members)
    return Pool(np.arange(len(members[0])), now, dict(enumerate(before, 1)))


A, B, C = SURE, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("by", "expected"),
    [("vote_entropy", [0, entr([1 / 3, 2 / 3]).sum(), np.log(3)]), ("variation_ratio", [0, 1 / 3, 2 / 3])],
    ids=["entropy", "ratio"],
)
def test_qbc_wants_the_most_divided_vote(by: str, expected: list[float]) -> None:
    strategy = Qbc.model_validate({"by": by, "members": [1, 2]})
    assert strategy.scores(committee([A, A, A], [A, B, B], [A, A, C]), RNG) == pytest.approx(expected)


def test_a_tied_vote_goes_by_how_torn_the_members_are_and_never_above_a_clearer_one() -> None:
    hesitant = [0.4, 0.3, 0.3]
    agreed, torn, divided = Qbc(members=[1, 2]).scores(
        committee([A, hesitant, A], [A, hesitant, B], [A, hesitant, A]), RNG
    )
    assert 0 == agreed < torn < 1e-5 < divided


def test_a_member_torn_between_two_classes_splits_its_vote() -> None:
    scores = Qbc(by="variation_ratio", members=[1]).scores(committee([TORN, TORN, TORN], [A, B, C]), RNG)
    assert scores == pytest.approx([1 / 4, 1 / 4, 1 / 2], abs=1e-5)


def test_the_pixels_of_an_image_are_voted_on_one_by_one() -> None:
    one, two = (np.array([pixels]).swapaxes(1, 2).reshape(1, 3, 1, 2) for pixels in ([A, A], [A, B]))
    pool = Pool(np.arange(1), Outputs(one, one), {1: Outputs(two, two)})
    assert Qbc(members=[1]).scores(pool, RNG) == pytest.approx([np.log(2) / 2])


@pytest.mark.parametrize("size", range(2, 10))
def test_what_breaks_a_tie_is_less_than_any_two_votes_lie_apart(size: int) -> None:
    results = [
        np.bincount(ballots, minlength=size) / size for ballots in combinations_with_replacement(range(size), size)
    ]
    spread = np.unique([np.sort(result) for result in results], axis=0)
    apart = np.diff(np.sort(entr(spread).sum(1)))
    assert apart[apart > 1e-12].min() > TIE * np.log(1000)
