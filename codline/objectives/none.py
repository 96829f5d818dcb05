"""No unsupervised loss: training sees labelled images alone."""

from typing import Literal

from codline.objectives.base import Objective


class Nothing(Objective):
    name: Literal["none"] = "none"
