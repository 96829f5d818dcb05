"""No unsupervised loss: training uses labeled images alone."""

from typing import Literal

from codline.objectives.base import Objective


class NoObjective(Objective):
    name: Literal["none"] = "none"
