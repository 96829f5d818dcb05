"""What a campaign of the paper is at each scale: the arms, datasets and scales of protocols.yaml."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from codline.core.errors import UserError
from codline.core.params import Section, cycle_chain, read_yaml
from codline.core.params_errors import format_value, suggestion

PAPER_STEPS = 7200  # of the paper's first cycle on CIFAR: 200 epochs of 36 batches
Overrides = dict[str, Any]  # {dotted key of params.yaml: value}


class Arm(Section):
    """A method that is compared: a strategy, and the objectives that are added to the task loss."""

    strategy: str
    objectives: list[dict[str, Any]] = Field(default_factory=list)
    snapshots: bool = False  # keep the scale's snapshots of the training
    full: bool = False  # every image labelled, a single cycle

    def overrides(self, scale: "Scale", preset: dict[str, Any], method: dict[str, Any]) -> Overrides:
        """Changes to the preset of a dataset; `method` are the strategy's released settings, from presets/methods.

        Of these, the start of a cycle's training is left out: methods that are compared are trained alike.
        """
        train, strategy = dict(method.get("train", {})), dict(method.get("score", {}).get("strategy", {}))
        train.pop("start_from", None)
        known = {each["name"]: each for each in [*preset["train"]["objectives"], *train.pop("objectives", [])]}
        objectives = [scale.objective(known.get(each["name"], {}) | each) for each in self.objectives]
        parameters = strategy | scale.strategies.get(self.strategy, {}) | {"name": self.strategy}
        changes: Overrides = {
            "score.strategy.name": parameters.pop("name"),  # first: another name drops all parameters
            **{f"score.strategy.{key}": value for key, value in parameters.items()},
            **{f"train.{key}": value for key, value in train.items()},
            **{f"prepare.model.{key}": value for key, value in method.get("prepare", {}).get("model", {}).items()},
            "train.objectives": objectives,
        }
        if self.snapshots:
            changes["train.snapshots"] = scale.snapshots
        return changes | ({"prepare.start": "all", **cycle_chain(1)} if self.full else {})


class ProtocolDataset(Section):
    """A dataset at one scale: the preset that it starts from, and what is changed in it."""

    title: str
    stands_for: list[str] = Field(alias="for", min_length=1)
    data: Literal["embedded", "official", "parquet"] = "official"
    preset: str
    minutes: PositiveFloat  # of one campaign
    base: Overrides = Field(default_factory=dict)


class Scale(Section):
    about: str
    hardware: str  # that `minutes` are about
    seeds: list[int]
    cycles: PositiveInt
    snapshots: list[PositiveInt]
    strategies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    scaled_decay: bool = False  # whether a moving average spans the same share of a cycle's steps as in the paper
    datasets: dict[str, ProtocolDataset]

    def objective(self, objective: dict[str, Any]) -> dict[str, Any]:
        """An objective at this scale: its decay is given as a share of the steps, if the scale has fewer of them."""
        if not self.scaled_decay or objective.get("decay") is None:
            return objective
        horizon = round(1 / (1 - objective["decay"]) / PAPER_STEPS, 6)
        return {key: value for key, value in objective.items() if key != "decay"} | {"horizon": horizon}

    def candidates(self, dataset: str) -> dict[str, ProtocolDataset]:
        """The datasets that can be used for one of the paper's, in the order of preference."""
        return {name: each for name, each in self.datasets.items() if dataset in each.stands_for}


class Protocols(Section):
    arms: dict[str, Arm]
    scales: dict[str, Scale]


@cache
def protocols() -> Protocols:
    return Protocols.model_validate(read_yaml(Path(__file__).with_name("protocols.yaml")))


def find_scale(name: str) -> Scale:
    scales = protocols().scales
    if name not in scales:
        raise UserError(f"--scale: unknown scale {format_value(name)}{suggestion(name, list(scales))}")
    return scales[name]
