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
    def queries(self) -> list[str]:
        """The cycles that select a query: all but the last."""
        return list(self.params["queries"] or {})

    def arguments(self, stage: str, cycle: str | None = None) -> dict[str, str]:
        """The command-line arguments of a stage; files are relative to the root. Without a cycle, `${...}` stays."""
        command = self.stages[stage].get("do", self.stages[stage])["cmd"]
        if cycle is not None:
            values = self.params | {"key": cycle, "item": self.params["cycles"][cycle]}
            command = re.sub(r"\$\{([\w.]+)\}", lambda match: str(dotted_value(values, match[1])), command)
        words = shlex.split(command)[4:]  # after: python -m stages <stage>
        names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
        return dict(zip(names, words[1::2], strict=True))

    def path(self, stage: str, argument: str, cycle: str | None = None) -> Path:
        return self.root / self.arguments(stage, cycle)[argument]

    def stage_names(self) -> list[str]:
        """All stages of the campaign as DVC names them (`train@c1`), in the order in which they run."""
        per_cycle = {name: stage["foreach"] for name, stage in self.stages.items() if "foreach" in stage}
        cycles_of = {name: self.cycles if each == "${cycles}" else self.queries for name, each in per_cycle.items()}
        of_cycles = [f"{name}@{cycle}" for cycle in self.cycles for name in per_cycle if cycle in cycles_of[name]]
        first, *last = [name for name in self.stages if name not in per_cycle]
        return [first, *of_cycles, *last]


def dotted_value(values: Any, key: str) -> Any:
    """The value at a dotted key, as in DVC's templating."""
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            raise UserError(f"params.yaml: {key}: missing")
        values = values[name]
    return values
