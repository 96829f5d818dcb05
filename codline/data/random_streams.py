"""Named random streams: every name has a generator of its own, so that more draws from one never change another."""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str) -> int:
    """A 63-bit seed that depends on `seed` and `names` only."""
    text = "/".join([str(seed), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, *names))
