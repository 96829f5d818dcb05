"""Parts of a batch, one for each of several training processes."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from codline.models.networks.batch_parts import BatchDraws, BatchPart, part_of_rank, whole_batch

counts, numbers = st.integers(2, 40), st.integers(1, 6)


def parts(count: int, processes: int) -> list[BatchPart]:
    return [part_of_rank(count, rank, processes) for rank in range(processes)]


@given(counts, numbers)
def test_every_image_is_in_one_part_with_a_weight(count: int, processes: int) -> None:
    rows = [part.rows for part in parts(count, processes) if part.image_weight > 0]
    assert sorted(np.concatenate(rows)) == list(range(count))


@given(counts, numbers)
def test_every_part_has_two_images_or_more_and_parts_differ_by_three_at_most(count: int, processes: int) -> None:
    sizes = [len(part.rows) for part in parts(count, processes)]
    assert min(sizes) >= 2
    assert max(sizes) - min(sizes) <= 3


@given(counts, numbers)
def test_weighted_means_of_the_parts_have_the_mean_of_the_batch_as_their_mean(count: int, processes: int) -> None:
    losses = np.random.default_rng(count).random(count)
    means = [losses[part.rows].mean() * part.image_weight for part in parts(count, processes)]
    assert np.mean(means) == pytest.approx(losses.mean())


@given(counts, numbers)
def test_pairs_of_the_batch_are_pairs_of_the_parts(count: int, processes: int) -> None:
    def pairs(rows: np.ndarray) -> list[tuple[int, int]]:
        """As the objective ll4al pairs them: the first with the last; an odd one is left out."""
        half = len(rows) // 2
        return list(zip(rows[:half], rows[: 2 * half][::-1], strict=False))

    of_parts = [pair for part in parts(count, processes) if part.pair_weight > 0 for pair in pairs(part.rows)]
    assert sorted(of_parts) == pairs(np.arange(count))
    weights = [part.pair_weight for part in parts(count, processes)]
    assert np.mean(weights) == pytest.approx(1)


@given(counts, numbers, st.integers(0, 100))
def test_draws_of_the_parts_are_those_of_the_whole_batch(count: int, processes: int, seed: int) -> None:
    def draw(part: BatchPart) -> list[torch.Tensor]:
        draws = BatchDraws(torch.Generator().manual_seed(seed), part)
        return [draws.uniform(), draws.integers(7), draws.uniform()]

    whole = draw(whole_batch(count))
    for part in parts(count, processes):
        assert all(torch.equal(ours, theirs[part.rows]) for ours, theirs in zip(draw(part), whole, strict=True))
