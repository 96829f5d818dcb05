"""Each picker on a pool small enough to know the answer, and draws against the chances they ought to have."""

import numpy as np
import pytest

from codline.pickers.base import Candidates, Ranked, predicted
from codline.pickers.class_balanced import ClassBalanced
from codline.pickers.power import Power
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top

DRAWS = 4000


def shares(picker: Power | Softmax, scores: list[float], budget: int = 1) -> np.ndarray:
    """How often each image is picked first, or at all."""
    rng, pool = np.random.default_rng(0), Candidates(np.arange(len(scores)), np.array(scores), least=min(scores))
    drawn = np.concatenate([picker.pick([pool], budget, rng).ids for _ in range(DRAWS)])
    return np.bincount(drawn, minlength=len(scores)) / DRAWS


def test_top_takes_the_highest_and_of_tied_ones_the_smaller_id() -> None:
    pool = Candidates(np.array([7, 8, 40, 99]), np.array([0.5, -1.0, 0.5, 0.7]))
    assert Top().pick([pool], 4, np.random.default_rng(0)).ids.tolist() == [99, 7, 40, 8]


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_power_draws_in_proportion_to_the_power_of_the_score(beta: float) -> None:
    chances = np.array([1.0, 2.0, 5.0]) ** beta
    assert shares(Power(beta=beta), [1.0, 2.0, 5.0]) == pytest.approx(chances / chances.sum(), abs=0.03)


def test_the_second_draw_is_by_the_chances_that_are_left() -> None:
    first = np.array([1.0, 2.0, 5.0]) / 8
    left = first[:, None] * first / (1 - first)[:, None]
    np.fill_diagonal(left, 0)
    assert shares(Power(), [1.0, 2.0, 5.0], budget=2) == pytest.approx(first + left.sum(0), abs=0.03)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_softmax_draws_in_proportion_to_the_exponential_of_the_score(beta: float) -> None:
    chances = np.exp(beta * np.array([-0.3, 0.0, 0.5]))
    assert shares(Softmax(beta=beta), [-0.3, 0.0, 0.5]) == pytest.approx(chances / chances.sum(), abs=0.03)


def test_power_draws_a_score_of_zero_only_when_nothing_else_is_left_and_then_at_random() -> None:
    found = shares(Power(), [0.0, 1e-9, 0.0, 1.0], budget=3)
    assert found[[1, 3]].tolist() == [1, 1]
    assert found[[0, 2]] == pytest.approx([0.5, 0.5], abs=0.03)


def test_power_measures_negative_scores_from_the_smallest() -> None:
    assert shares(Power(), [-3.0, -2.0, 1.0]) == pytest.approx([0, 1 / 5, 4 / 5], abs=0.03)


@pytest.mark.parametrize("score", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("picker", [Power(), Softmax()])
def test_images_alike_are_drawn_alike(picker: Power | Softmax, score: float) -> None:
    assert shares(picker, [score] * 4) == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize("picker", [Power(beta=1e6), Softmax(beta=1e6)])
def test_without_noise_to_speak_of_a_draw_is_the_top(picker: Power | Softmax) -> None:
    pool = Candidates(np.arange(20), np.random.default_rng(3).random(20))
    assert (
        picker.pick([pool], 9, np.random.default_rng(0)).ids.tolist()
        == Top().pick([pool], 9, np.random.default_rng(0)).ids.tolist()
    )


def test_classes_take_turns_until_they_run_out() -> None:
    pool = Candidates(np.arange(7), np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 1.0]), np.array([2, 2, 2, 2, 0, 0, 5]))
    assert ClassBalanced().pick([pool], 7, np.random.default_rng(0)).ids.tolist() == [0, 4, 6, 1, 5, 2, 3]
    assert ClassBalanced().pick([pool], 4, np.random.default_rng(0)).ids.tolist() == [0, 4, 6, 1]


def test_of_a_single_class_the_highest_scores_are_taken() -> None:
    pool = Candidates(np.array([3, 4, 5]), np.array([1.0, 2.0, 1.0]), np.zeros(3, np.int64))
    assert ClassBalanced().pick([pool], 2, np.random.default_rng(0)).ids.tolist() == [4, 3]


def test_the_outputs_of_all_images_are_never_held_at_once() -> None:
    asked: list[int] = []

    def take(ids: np.ndarray) -> np.ndarray:
        asked.append(len(ids))
        return np.eye(3)[ids % 3]

    ids = np.arange(10_000)[::-1]
    assert np.array_equal(predicted(take, ids), ids % 3)
    assert max(asked) < 5000


def test_memory_does_not_grow_with_the_pool() -> None:
    held: list[int] = []

    class Watched(Top):
        def order(self, ranked: Ranked) -> np.ndarray:
            held.append(len(ranked.ids))
            return super().order(ranked)

    rng = np.random.default_rng(0)
    pools = [Candidates(np.arange(1000) + 1000 * i, rng.random(1000)) for i in range(30)]
    found = Watched().pick(iter(pools), 10, rng)
    everyone = np.concatenate([pool.scores for pool in pools])
    assert found.ids.tolist() == np.argsort(-everyone)[:10].tolist()
    assert max(held) < 30  # what cannot be among the best is not even sorted
    assert sum(held[1:]) < 1000  # what cannot be among the best is not even sorted
