"""Feature rows for tests of distances."""

import numpy as np
from hypothesis import strategies as st

row_kinds = st.sampled_from(["normal", "relu", "grid", "copies", "constant"])


def make_rows(seed: int, rows: int, width: int, kind: str = "normal") -> np.ndarray:
    """Features like those of networks (normal, relu), with many ties (grid, copies), or all equal (constant)."""
    rng = np.random.default_rng(seed)
    kinds = {
        "normal": lambda: rng.normal(size=(rows, width)),
        "relu": lambda: np.maximum(rng.normal(size=(rows, width)), 0) * rng.choice([0, 1e-3, 1, 1e3], (rows, 1)),
        "grid": lambda: rng.integers(-2, 3, (rows, width)),
        "copies": lambda: rng.normal(size=(3, width))[rng.integers(0, 3, rows)],
        "constant": lambda: np.full((rows, width), 0.3),
    }
    return np.asarray(kinds[kind](), np.float32)
