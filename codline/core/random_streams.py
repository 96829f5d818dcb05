"""Random streams with names: the same seed and name give the same numbers, and no stream disturbs another."""

import hashlib

import numpy as np


def derive(seed: int, *names: str) -> int:
    text = "/".join([str(seed), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *names))
