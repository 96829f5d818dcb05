"""The paper's unsupervised loss: squared output discrepancy to a teacher, a moving average of the weights."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationInfo, field_validator

from codline.objectives.base import DiscrepancyObjective, TrainingContext

if TYPE_CHECKING:
    from codline.models.networks.network import Network
    from codline.objectives.modules.teacher import Teacher


class EmaObjective(DiscrepancyObjective):
    """The defaults follow the paper where it is explicit; docs/method.md compares them with the released code."""

    name: Literal["ema"] = "ema"
    decay: float | None = Field(default=None, ge=0, lt=1)  # 0.999 unless `horizon` is given
    # The steps that the average spans, 1 / (1 - decay), as a share of the cycle's. The paper's 0.999 spans a seventh of
    # its first cycle (0.14), but all of a short training.
    horizon: float | None = Field(default=None, gt=0)
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

    @field_validator("horizon")
    @classmethod
    def check_horizon(cls, horizon: float | None, info: ValidationInfo) -> float | None:
        if horizon is not None and info.data.get("decay") is not None:
            raise ValueError(f"only one of horizon and decay (here {info.data['decay']})")
        return horizon

    def decay_over(self, steps: int) -> float:
        """The decay in a training of this many steps."""
        if self.horizon is None:
            return 0.999 if self.decay is None else self.decay
        return max(0.0, 1 - 1 / (self.horizon * steps))

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "Teacher":
        from codline.objectives.modules.teacher import Teacher

        teacher = Teacher(network, self, context)
        if self.persists and self.name in context.previous_auxiliary:
            teacher.load_state_dict(dict(context.previous_auxiliary[self.name]))
        return teacher

    def repeats_first_batch(self) -> bool:
        return self.fixed_first_batch
