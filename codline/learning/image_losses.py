"""True loss of each image. Shapes: n rows of a chunk, C classes; segmentation has two more axes."""

import numpy as np

from codline.data.dense_outputs import IGNORE_INDEX


def image_losses(logits_nC: np.ndarray, labels_n: np.ndarray) -> np.ndarray:
    """Cross-entropy of each image; for segmentation the mean over labeled pixels, 0 if there are none."""
    shifted = logits_nC.astype(np.float64) - logits_nC.max(axis=1, keepdims=True)
    has_label = labels_n != IGNORE_INDEX if labels_n.ndim > 1 else np.ones(len(labels_n), bool)
    classes = np.where(has_label, labels_n, 0)[:, None].astype(np.int64)
    losses: np.ndarray = np.log(np.exp(shifted).sum(axis=1)) - np.take_along_axis(shifted, classes, axis=1)[:, 0]
    if labels_n.ndim == 1:
        return losses
    pixels = tuple(range(1, labels_n.ndim))
    mean: np.ndarray = (losses * has_label).sum(axis=pixels) / np.maximum(has_label.sum(axis=pixels), 1)
    return mean
