"""Pickers on small pools with a known result, and sampling against its expected probabilities."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.pickers.base import CandidateChunk, Picker, RankedCandidates, predicted_classes
from codline.pickers.class_balanced import ClassBalanced
from codline.pickers.power import Power
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top

DRAWS = 4000


def pick_ids(picker: Picker, pool: CandidateChunk, budget: int) -> list[int]:
    ids: list[int] = picker.pick([pool], budget, np.random.default_rng(0)).ids.tolist()
    return ids


def pick_shares(picker: Power | Softmax, scores: list[float], budget: int = 1) -> np.ndarray:
    """How often each image is among the `budget` picked ones."""
    rng = np.random.default_rng(0)
    pool = CandidateChunk(np.arange(len(scores)), np.array(scores), lowest_score=min(scores))
    ids = np.concatenate([picker.pick([pool], budget, rng).ids for _ in range(DRAWS)])
    return np.bincount(ids, minlength=len(scores)) / DRAWS


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=60), st.integers(1, 9), st.randoms())
def test_top_of_the_tops_of_parts_is_the_top_of_all(scores: list[float], parts: int, random: Random) -> None:
    budget, rng = random.randint(1, len(scores)), np.random.default_rng(0)
    pool = CandidateChunk(np.arange(len(scores)), np.array(scores))
    part_of = np.array([random.randrange(parts) for _ in scores])
    chunks = [CandidateChunk(pool.ids[rows], pool.scores[rows]) for rows in (part_of == part for part in range(parts))]
    tops = [Top().pick([chunk], budget, rng) for chunk in chunks if len(chunk.ids)]
    random.shuffle(tops)
    merged = Top().pick((CandidateChunk(top.ids, top.scores) for top in tops), budget, rng)
    assert merged.ids.tolist() == pick_ids(Top(), pool, budget)


def test_top_picks_the_highest_scores_and_among_ties_the_smaller_id() -> None:
    pool = CandidateChunk(np.array([7, 8, 40, 99]), np.array([0.5, -1.0, 0.5, 0.7]))
    assert pick_ids(Top(), pool, 4) == [99, 7, 40, 8]


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_power_picks_in_proportion_to_the_power_of_the_score(beta: float) -> None:
    weights = np.array([1.0, 2.0, 5.0]) ** beta
    assert pick_shares(Power(beta=beta), [1.0, 2.0, 5.0]) == pytest.approx(weights / weights.sum(), abs=0.03)


def test_power_picks_the_second_image_in_proportion_among_the_remaining_ones() -> None:
    first = np.array([1.0, 2.0, 5.0]) / 8
    second = first[:, None] * first / (1 - first)[:, None]
    np.fill_diagonal(second, 0)
    assert pick_shares(Power(), [1.0, 2.0, 5.0], budget=2) == pytest.approx(first + second.sum(0), abs=0.03)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_softmax_picks_in_proportion_to_the_exponential_of_the_score(beta: float) -> None:
    weights = np.exp(beta * np.array([-0.3, 0.0, 0.5]))
    assert pick_shares(Softmax(beta=beta), [-0.3, 0.0, 0.5]) == pytest.approx(weights / weights.sum(), abs=0.03)


def test_power_picks_scores_of_zero_last_and_in_random_order() -> None:
    shares = pick_shares(Power(), [0.0, 1e-9, 0.0, 1.0], budget=3)
    assert shares[[1, 3]].tolist() == [1, 1]
    assert shares[[0, 2]] == pytest.approx([0.5, 0.5], abs=0.03)


def test_power_subtracts_the_lowest_score_if_it_is_negative() -> None:
    assert pick_shares(Power(), [-3.0, -2.0, 1.0]) == pytest.approx([0, 1 / 5, 4 / 5], abs=0.03)


@pytest.mark.parametrize("score", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("picker", [Power(), Softmax()])
def test_sampling_picks_equal_scores_equally_often(picker: Power | Softmax, score: float) -> None:
    assert pick_shares(picker, [score] * 4) == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize("picker", [Power(beta=1e6), Softmax(beta=1e6)])
def test_sampling_with_a_large_beta_picks_the_highest_scores(picker: Power | Softmax) -> None:
    pool = CandidateChunk(np.arange(20), np.random.default_rng(3).random(20))
    assert pick_ids(picker, pool, 9) == pick_ids(Top(), pool, 9)


def test_class_balanced_takes_classes_in_turn_until_they_are_exhausted() -> None:
    scores, classes = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 1.0]), np.array([2, 2, 2, 2, 0, 0, 5])
    pool = CandidateChunk(np.arange(7), scores, classes)
    assert pick_ids(ClassBalanced(), pool, 7) == [0, 4, 6, 1, 5, 2, 3]
    assert pick_ids(ClassBalanced(), pool, 4) == [0, 4, 6, 1]


def test_class_balanced_picks_the_highest_scores_if_there_is_one_class() -> None:
    pool = CandidateChunk(np.array([3, 4, 5]), np.array([1.0, 2.0, 1.0]), np.zeros(3, np.int64))
    assert pick_ids(ClassBalanced(), pool, 2) == [4, 3]


def test_predicted_classes_reads_the_logits_in_chunks() -> None:
    chunk_sizes: list[int] = []

    def logits(ids: np.ndarray) -> np.ndarray:
        chunk_sizes.append(len(ids))
        return np.eye(3)[ids % 3]

    ids = np.arange(10_000)[::-1]
    assert np.array_equal(predicted_classes(logits, ids), ids % 3)
    assert max(chunk_sizes) < 5000


def test_pick_sorts_only_candidates_that_can_be_among_the_best() -> None:
    sorted_counts: list[int] = []

    class RecordingTop(Top):
        def argsort(self, candidates: RankedCandidates) -> np.ndarray:
            sorted_counts.append(len(candidates.ids))
            return super().argsort(candidates)

    rng = np.random.default_rng(0)
    chunks = [CandidateChunk(np.arange(1000) + 1000 * i, rng.random(1000)) for i in range(30)]
    picked = RecordingTop().pick(iter(chunks), 10, rng)
    scores = np.concatenate([chunk.scores for chunk in chunks])
    assert picked.ids.tolist() == np.argsort(-scores)[:10].tolist()
    assert max(sorted_counts) < 30
    assert sum(sorted_counts[1:]) < 1000
