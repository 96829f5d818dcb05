"""The paper's unsupervised loss: squared output discrepancy to a teacher, a moving average of the weights."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from codline.objectives.base import DiscrepancyObjective, TrainingContext

if TYPE_CHECKING:
    from codline.models.networks.network import Network
    from codline.objectives.modules.teacher import Teacher


class EmaObjective(DiscrepancyObjective):
    """The defaults follow the paper where it is explicit; docs/method.md compares them with the released code."""

    name: Literal["ema"] = "ema"
    decay: float = Field(default=0.999, ge=0, lt=1)
    warm_up: bool = True  # a plain average over the first steps, which turns into a moving one
    # The teacher normalizes by the statistics of its current batch, or by averaged statistics.
    buffers: Literal["batch", "averaged"] = "batch"
    # The teacher starts from the network's weights, or from those of another untrained network.
    start: Literal["copy", "independent"] = "copy"
    persists: bool = False  # whether the teacher continues from the previous cycle's
    # 2: a second head is trained towards the teacher, and the first head towards the second, on labeled images too.
    heads: Literal[1, 2] = 1
    # Reproduces a fault of the released code: the first cycle uses the same unlabeled images in every step.
    fixed_first_batch: bool = False

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "Teacher":
        from codline.objectives.modules.teacher import Teacher

        teacher = Teacher(network, self, context)
        if self.persists and self.name in context.previous_auxiliary:
            teacher.load_state_dict(dict(context.previous_auxiliary[self.name]))
        return teacher

    def repeats_first_batch(self) -> bool:
        return self.fixed_first_batch
