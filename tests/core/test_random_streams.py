"""Random streams with names: repeatable, and each its own."""

import numpy as np
from hypothesis import given, strategies as st

from codline.core import random_streams

STREAMS = [
    ("split",),
    ("init",),
    *((name, cycle) for name in ("training", "selection", "annotator", "diagnose") for cycle in ("c1", "c2", "c12")),
]
names = st.lists(st.text("abc123", min_size=1, max_size=3), min_size=1, max_size=3)


def test_the_streams_of_a_campaign_differ_from_one_another_and_between_seeds() -> None:
    derived = {random_streams.derive(seed, *stream) for seed in range(20) for stream in STREAMS}
    assert len(derived) == 20 * len(STREAMS)


@given(st.integers(0, 2**63), names)
def test_the_same_seed_and_name_give_the_same_numbers(seed: int, name: list[str]) -> None:
    assert np.array_equal(random_streams.stream(seed, *name).random(4), random_streams.stream(seed, *name).random(4))


@given(st.integers(0, 2**63), names, st.integers(0, 2**63), names)
def test_another_seed_or_name_gives_other_numbers(
    seed: int, name: list[str], other_seed: int, other: list[str]
) -> None:
    same = (seed, name) == (other_seed, other)
    assert (random_streams.derive(seed, *name) == random_streams.derive(other_seed, *other)) == same


@given(st.integers(0, 2**63), names)
def test_a_derived_seed_fits_what_numpy_and_torch_take(seed: int, name: list[str]) -> None:
    assert 0 <= random_streams.derive(seed, *name) < 2**63


def test_a_seed_means_the_same_on_every_machine() -> None:
    assert random_streams.derive(0, "split") == 374788079615300020
