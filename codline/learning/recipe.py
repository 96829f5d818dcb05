"""Hyperparameters of training."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from codline.core.errors import UserError
from codline.core.params import Section, is_amount
from codline.learning.augmentation import Augmentation
from codline.objectives import AnyObjective


def check_steps(value: Any) -> Any:
    if not is_amount(value):
        raise ValueError("a share of the steps (more than 0, less than 1) or a number of steps (1, 2, ...)")
    return value


class Recipe(Section):
    """The learning rate decays once, as in the paper; Adam uses the betas (0.9, 0.999)."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    epochs: PositiveInt
    batch_size: int = Field(ge=2)
    # How many share every batch. Decides bits, as compute.threads does; docs/performance.md tells when to use it.
    processes: int = Field(default=1, ge=1, le=256)
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
    objectives: list[AnyObjective]  # their losses are added to the task loss
    # How long before the end weights are kept: a number of steps, or a share of the cycle's steps.
    snapshots: list[Annotated[int | float, BeforeValidator(check_steps)]] = Field(default=[], max_length=8)
    committee: int = Field(default=0, ge=0, le=16)  # networks trained besides the model, for the strategy qbc

    @model_validator(mode="before")
    @classmethod
    def refuse_old_key(cls, values: Any) -> Any:
        if isinstance(values, dict) and "objective" in values:
            expected = "the list train.objectives: [{name: ema}], or [] for labels alone"
            raise UserError(f"params.yaml: train.objective: found one objective, expected {expected}")
        return values

    @field_validator("processes")
    @classmethod
    def check_processes(cls, processes: int, info: ValidationInfo) -> int:
        batch_size = info.data.get("batch_size", 2 * processes)
        if processes > 1 and batch_size < 2 * processes:
            raise ValueError(f"at most {batch_size // 2}: two images of a batch of {batch_size} for each process")
        return processes

    @field_validator("momentum")
    @classmethod
    def check_momentum(cls, momentum: float, info: ValidationInfo) -> float:
        if momentum and info.data.get("optimizer") == "adam":
            raise ValueError("0 with optimizer: adam, which has its own")
        return momentum

    @field_validator("objectives")
    @classmethod
    def check_objectives(cls, objectives: list[AnyObjective], info: ValidationInfo) -> list[AnyObjective]:
        names = [objective.name for objective in objectives]
        if len(set(names)) < len(names):
            raise ValueError("every objective once")
        if len(set(unlabeled_batch_sizes(objectives, info.data.get("batch_size", 0)))) > 1:
            raise ValueError("the same batch_size for all, since they share the unlabeled images of a step")
        return objectives

    @property
    def unlabeled_batch_size(self) -> int:
        """Number of unlabeled images per step; 0 if no objective uses any."""
        return max(unlabeled_batch_sizes(self.objectives, self.batch_size), default=0)


def unlabeled_batch_sizes(objectives: list[AnyObjective], labeled_batch_size: int) -> list[int]:
    sizes = [objective.unlabeled_batch_size(labeled_batch_size) for objective in objectives]
    return [size for size in sizes if size is not None]
