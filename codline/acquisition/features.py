"""Feature matrices: order, validation, normalization and clustering of their rows."""

import warnings

import numpy as np

from codline.core.errors import DataError


def sort_by_id(ids: np.ndarray, rows: np.ndarray, what: str = "features") -> np.ndarray:
    """Rows in ascending order of their ids, so that input order does not matter and ties go to the smaller id."""
    return check_finite(ids, rows, what)[np.argsort(ids)]


def check_finite(ids: np.ndarray, rows: np.ndarray, what: str) -> np.ndarray:
    invalid = ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if invalid.any():
        raise DataError(f"{what} of image {ids[invalid].min()}: found NaN or infinity, expected finite numbers")
    return rows


def normalize_rows(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; rows of zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: np.ndarray = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return scaled


def k_means(rows: np.ndarray, count: int, rng: np.random.Generator, n_init: int = 1) -> np.ndarray:
    """Cluster number of each row: the best of `n_init` runs, or above 50 clusters one run from the best start.

    Single-threaded: several threads add up in the order in which they finish.
    """
    # scikit-learn takes a second to import, and only strategies that cluster need it.
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    options = {"n_clusters": count, "n_init": n_init, "random_state": int(rng.integers(1 << 31))}
    algorithm = KMeans(**options) if count <= 50 else MiniBatchKMeans(**options, batch_size=5000)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters: some stay empty
        clusters: np.ndarray = algorithm.fit_predict(rows)
    return clusters
