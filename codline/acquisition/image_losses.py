"""What a model's outputs lose against the truth. n rows of a chunk, C classes; dense ones have two axes more."""

import numpy as np

from codline.data.dense_outputs import NOTHING


def losses(logits_nC: np.ndarray, labels_n: np.ndarray) -> np.ndarray:
    """Cross-entropy of each row; of dense ones the mean over the pixels that have a class, 0 where none has."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    counted = labels_n != NOTHING if labels_n.ndim > 1 else np.ones(len(labels_n), bool)
    picked = np.take_along_axis(shifted, np.where(counted, labels_n, 0)[:, None].astype(np.int64), axis=1)[:, 0]
    result: np.ndarray = np.log(np.exp(shifted).sum(axis=1)) - picked
    if labels_n.ndim == 1:
        return result
    pixels = tuple(range(1, labels_n.ndim))
    mean: np.ndarray = (result * counted).sum(axis=pixels) / np.maximum(counted.sum(axis=pixels), 1)
    return mean
