"""How far two models' outputs for one image lie apart: the one place where outputs are compared."""

import numpy as np


def discrepancy(outputs_NC: np.ndarray, others_NC: np.ndarray) -> np.ndarray:
    """L2 norm of the difference, per image (Huang et al., 2021, definition 1)."""
    distance: np.ndarray = np.linalg.norm(outputs_NC - others_NC, axis=1)
    return distance
