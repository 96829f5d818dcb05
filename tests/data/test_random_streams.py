"""Named random streams: repeatable and independent of each other."""

import numpy as np
from hypothesis import given, strategies as st

from codline.data import random_streams

STREAMS = [
    ("split",),
    ("init",),
    *((name, cycle) for name in ("training", "selection", "annotator", "diagnose") for cycle in ("c1", "c2", "c12")),
]
names = st.lists(st.text("abc123", min_size=1, max_size=3), min_size=1, max_size=3)


def test_derive_seed_differs_between_all_streams_and_seeds() -> None:
    derived = {random_streams.derive_seed(seed, *stream) for seed in range(20) for stream in STREAMS}
    assert len(derived) == 20 * len(STREAMS)


@given(st.integers(0, 2**63), names)
def test_generator_repeats_its_numbers_for_the_same_seed_and_name(seed: int, name: list[str]) -> None:
    assert np.array_equal(
        random_streams.generator(seed, *name).random(4), random_streams.generator(seed, *name).random(4)
    )


@given(st.integers(0, 2**63), names, st.integers(0, 2**63), names)
def test_derive_seed_differs_for_another_seed_or_name(
    seed: int, name: list[str], other_seed: int, other: list[str]
) -> None:
    same = (seed, name) == (other_seed, other)
    assert (random_streams.derive_seed(seed, *name) == random_streams.derive_seed(other_seed, *other)) == same


@given(st.integers(0, 2**63), names)
def test_derive_seed_fits_numpy_and_torch(seed: int, name: list[str]) -> None:
    assert 0 <= random_streams.derive_seed(seed, *name) < 2**63


def test_derive_seed_is_the_same_on_every_machine() -> None:
    assert random_streams.derive_seed(0, "split") == 374788079615300020
