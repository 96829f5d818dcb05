"""Output discrepancy: the distance between two models' outputs for the same image."""

import numpy as np

from codline.data.dense_outputs import mean_per_image


def discrepancy(outputs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """L2 norm over the classes of the difference, per image (Huang et al., 2021, definition 1).

    Shapes (N, C) or (N, C, H, W). Segmentation takes the mean over the pixels, which does not depend on the image
    size; the paper does not specify it.
    """
    return mean_per_image(np.linalg.norm(outputs - others, axis=1))
