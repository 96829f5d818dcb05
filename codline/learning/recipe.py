"""Hyperparameters of training."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from codline.core.params import Section
from codline.learning.augmentation import Augmentation
from codline.objectives import AnyObjective


class Recipe(Section):
    """The learning rate decays once, as in the paper; Adam uses the betas (0.9, 0.999)."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    epochs: PositiveInt
    batch_size: int = Field(ge=2)
    # If the last batch of an epoch is less than this share of batch_size, it joins the one before it: batch norm on a
    # few images costs several points of accuracy (docs/log.md).
    smallest_batch: float = Field(default=0.25, ge=0, lt=1)
    learning_rate: PositiveFloat
    momentum: float = Field(ge=0, lt=1)
    weight_decay: NonNegativeFloat
    decay_at: float = Field(gt=0, le=1)  # fraction of the epochs after which the learning rate decays
    decay_by: float = Field(gt=0, le=1)
    start_from: Literal["previous", "fresh"]  # the previous cycle's weights, or the initial ones
    augment: Augmentation
    objective: AnyObjective
    snapshots: list[PositiveInt] = Field(default=[], max_length=8)  # steps before the end at which weights are kept

    @field_validator("momentum")
    @classmethod
    def check_momentum(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("optimizer") == "adam":
            raise ValueError("0 with optimizer: adam, which has its own")
        return momentum
