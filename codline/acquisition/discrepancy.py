"""How far two models' outputs for one image lie apart: the one place where outputs are compared."""

import numpy as np

from codline.data.dense_outputs import per_image


def discrepancy(outputs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """L2 norm of the difference over the classes, per image (Huang et al., 2021, definition 1). Shapes: (N, C), or (N, C, H, W) of dense outputs.

    Of dense outputs it is the mean over the pixels; the paper does not say, and a mean does not grow with the image.
    """
    return per_image(np.linalg.norm(outputs - others, axis=1))
