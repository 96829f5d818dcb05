"""Reads dvc.yaml, so that file paths are written there and nowhere else."""

import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

from codline.core import params
from codline.core.errors import UserError


class Pipeline:
    """The DVC pipeline of the project at `root`: its stages, cycles and files."""

    def __init__(self, root: Path = Path()) -> None:
        self.root = root

    @cached_property
    def stages(self) -> dict[str, Any]:
        stages: dict[str, Any] = params.read_yaml(self.root / "dvc.yaml")["stages"]
        return stages

    @cached_property
    def params(self) -> dict[str, Any]:
        return params.read_yaml(self.root / "params.yaml")

    @property
    def cycles(self) -> list[str]:
        return list(self.params["cycles"])

    @property
    def inputs(self) -> dict[str, str]:
        """{name: path} of the files and folders that the dataset is read from."""
        return dict(self.params.get("inputs") or {})

    @property
    def queries(self) -> list[str]:
        """The cycles that select a query: all but the last."""
        return list(self.params["queries"] or {})

    def arguments(self, stage: str, cycle: str | None = None) -> dict[str, str]:
        """The command-line arguments of a stage; files are relative to the root. Without a cycle, `${...}` stays.

        Of scan, `cycle` is the name of an input.
        """
        command = self.definition(stage)["cmd"]
        if cycle is not None:
            command = self.resolve(command, stage, cycle)
        words = shlex.split(command)[4:]  # after: python -m stages <stage>
        names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
        return dict(zip(names, words[1::2], strict=True))

    def recorded(self, name: str) -> tuple[set[str], list[str]]:
        """What dvc.lock records of a stage (`train@c1`): its keys of params.yaml, and its dependencies."""
        stage, _, cycle = name.partition("@")
        definition = self.definition(stage)
        keys = {self.resolve(key, stage, cycle) for key in definition.get("params", []) if isinstance(key, str)}
        return keys, [self.resolve(path, stage, cycle) for path in definition.get("deps", [])]

    def outputs(self, name: str) -> list[str]:
        """The outputs of a stage (`train@c1`)."""
        stage, _, cycle = name.partition("@")
        definition = self.definition(stage)
        entries = [entry for kind in ("outs", "metrics", "plots") for entry in definition.get(kind, [])]
        paths = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
        return [self.resolve(path, stage, cycle) for path in paths]

    def definition(self, stage: str) -> dict[str, Any]:
        """The stage in dvc.yaml, with `${...}` in it."""
        definition: dict[str, Any] = self.stages[stage].get("do", self.stages[stage])
        return definition

    def resolve(self, text: str, stage: str, cycle: str) -> str:
        """Replace each `${...}`; `cycle` is empty for a stage that has none."""
        values = self.params | ({"key": cycle, "item": self.item(stage, cycle)} if cycle else {})
        return re.sub(r"\$\{([\w.]+)\}", lambda match: str(dotted_value(values, match[1])), text)

    def item(self, stage: str, key: str) -> Any:
        """What `${item}` is in dvc.yaml: the path of an input; of a cycle, its lines in `cycles` and `queries`."""
        if stage == "scan":
            return self.inputs[key]
        return self.params["cycles"][key] | (self.params["queries"] or {}).get(key, {})

    def path(self, stage: str, argument: str, cycle: str | None = None) -> Path:
        return self.root / self.arguments(stage, cycle)[argument]

    def stage_names(self) -> list[str]:
        """All stages of the campaign as DVC names them (`train@c1`), in the order in which they run."""
        per_cycle = {name: stage["foreach"] for name, stage in self.stages.items() if "foreach" in stage}
        keys = {"${cycles}": self.cycles, "${queries}": self.queries, "${inputs}": list(self.inputs)}
        of_inputs = [f"{name}@{key}" for name, each in per_cycle.items() if each == "${inputs}" for key in keys[each]]
        of_cycles = [
            f"{name}@{cycle}"
            for cycle in self.cycles
            for name, each in per_cycle.items()
            if each != "${inputs}" and cycle in keys[each]
        ]
        first, *last = [name for name in self.stages if name not in per_cycle]
        return [*of_inputs, first, *of_cycles, *last]


def dotted_value(values: Any, key: str) -> Any:
    """The value at a dotted key, as in DVC's templating."""
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            raise UserError(f"params.yaml: {key}: missing")
        values = values[name]
    return values
