"""Draws: exact numbers by class, or decided by each image alone."""

import numpy as np
from hypothesis import given, strategies as st

from codline.data.draws import draw, draw_count, hash_values

KEYS = st.integers(0, 2**63 - 1)
IDS = st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=60, unique=True)


def strata_of(ids: list[int]) -> np.ndarray:
    """Four classes of different sizes; fixed for an id."""
    return np.array([min(i % 7, 3) for i in ids], np.int32)


def drawn_ids(amount: float, ids: list[int], key: int, by_content: bool = True) -> set[int]:
    array = np.array(ids)
    return set(array[draw(amount, array, strata_of(ids), key, by_content)].tolist())


@given(IDS, KEYS, st.floats(0.05, 0.95))
def test_draw_of_a_share_by_content_does_not_depend_on_the_other_images(ids: list[int], key: int, share: float) -> None:
    half = ids[: len(ids) // 2]
    everything, some = drawn_ids(share, ids, key), drawn_ids(share, half, key)
    if (hash_values(np.array(half), key) < np.uint64(share * 2.0**64)).any():
        assert some == everything & set(half)
    assert len(some) >= 1


@given(IDS, KEYS, st.integers(1, 60))
def test_draw_count_gives_an_additional_image_the_place_of_at_most_one_other(
    ids: list[int], key: int, count: int
) -> None:
    before, after = (drawn_ids(min(count, len(ids) - 1), some, key) for some in (ids[:-1], ids))
    assert len(before) == len(after) == min(count, len(ids) - 1)
    assert len(before - after) <= 1


@given(IDS, KEYS, st.integers(1, 60))
def test_draw_count_is_in_proportion_to_the_classes(ids: list[int], key: int, count: int) -> None:
    count, strata = min(count, len(ids)), strata_of(ids)
    counts = np.bincount(strata[draw_count(count, np.array(ids), strata, key)], minlength=4)
    assert counts.sum() == count
    assert (np.abs(counts - count * np.bincount(strata, minlength=4) / len(ids)) <= 2).all()


@given(IDS, KEYS, st.integers(1, 60))
def test_draw_count_does_not_depend_on_the_order_of_the_images(ids: list[int], key: int, count: int) -> None:
    assert drawn_ids(count, ids, key) == drawn_ids(count, ids[::-1], key)


def test_draw_of_a_share_of_positions_is_exact_and_stratified() -> None:
    strata = np.repeat([0, 1, 2], [100, 50, 10]).astype(np.int32)
    drawn = draw(0.2, np.arange(160), strata, key=3, by_content=False)
    assert np.bincount(strata[drawn]).tolist() == [20, 10, 2]


def test_hash_values_are_uniform_and_independent_for_other_keys() -> None:
    first, second = (hash_values(np.arange(100_000), key) / 2.0**64 for key in (1, 2))
    assert abs(first.mean() - 0.5) < 0.005
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    for share in (0.01, 0.1, 0.5):
        joint = ((first < share) & (second < share)).mean()
        assert abs(joint - share**2) < 0.01 * share
