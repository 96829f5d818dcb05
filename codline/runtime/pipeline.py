"""dvc.yaml, read: which file a stage's argument means. So that nobody but dvc.yaml has to spell a path."""

import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

from codline.core import params
from codline.core.errors import UserError


class Pipeline:
    """The pipeline of the project at `root`."""

    def __init__(self, root: Path = Path()) -> None:
        self.root = root

    @cached_property
    def stages(self) -> dict[str, Any]:
        stages: dict[str, Any] = params.load(self.root / "dvc.yaml")["stages"]
        return stages

    @cached_property
    def params(self) -> dict[str, Any]:
        return params.load(self.root / "params.yaml")

    @property
    def cycles(self) -> list[str]:
        return list(self.params["cycles"])

    @property
    def queries(self) -> list[str]:
        return list(self.params["queries"] or {})

    def arguments(self, stage: str, cycle: str | None = None) -> dict[str, str]:
        """The command line of a stage, as {argument: value}; files are relative to the root."""
        command = self.stages[stage].get("do", self.stages[stage])["cmd"]
        if cycle is not None:
            known = self.params | {"key": cycle, "item": self.params["cycles"][cycle]}
            command = re.sub(r"\$\{([\w.]+)\}", lambda hole: str(filling(known, hole[1])), command)
        words = shlex.split(command)[3:]  # after: python -m stages.<stage>
        return {
            name.removeprefix("--").replace("-", "_"): value
            for name, value in zip(words[::2], words[1::2], strict=True)
        }

    def path(self, stage: str, argument: str, cycle: str | None = None) -> Path:
        return self.root / self.arguments(stage, cycle)[argument]

    def names(self) -> list[str]:
        """Every stage of the campaign as DVC calls it, in the order of one cycle after the other."""
        each = [name for name, stage in self.stages.items() if "foreach" in stage]
        mine = {name: self.cycles if self.stages[name]["foreach"] == "${cycles}" else self.queries for name in each}
        unrolled = [f"{name}@{cycle}" for cycle in self.cycles for name in each if cycle in mine[name]]
        once = [name for name in self.stages if name not in each]
        return [*once[:1], *unrolled, *once[1:]]


def filling(known: Any, key: str) -> Any:
    """What stands at a dotted key; DVC fills the holes of dvc.yaml the same way."""
    for name in key.split("."):
        if not isinstance(known, dict) or name not in known:
            raise UserError(f"params.yaml: {key}: missing")
        known = known[name]
    return known
