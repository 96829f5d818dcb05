"""A campaign's directory, and stages run in it: in this process, or as the command that DVC runs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core import params
from codline.runtime.pipeline import Pipeline
from stages.runner import resolved

REPOSITORY = Path(__file__).parents[1]
STAGES = Pipeline(REPOSITORY).stages
SMALL = {
    "prepare.dataset": {"name": "digits", "test": 0.2},
    "prepare.model": {"name": "small_cnn", "width": 4},
    "train.epochs": 3,
    "diagnose.bootstrap": 50,
    "diagnose.gradients": 10,
    "compute.threads": 1,
    "compute.device": "cpu",
} | params.chain(3)


class Workspace:
    """The directory that tests work in; it must be the current one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pipeline = Pipeline(root)
        self.pipeline.stages = STAGES  # a tenth of a second to read, for every test

    def change(self, **dotted: Any) -> None:
        """Rewrite params.yaml: change(**{"select.budget": 7})."""
        raw = params.load(self.root / "params.yaml")
        for where, value in dotted.items():
            *above, last = where.split(".")
            holder = raw
            for key in above:
                holder = holder[key]
            holder[last] = value
        with (self.root / "params.yaml").open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(raw, file)
        self.pipeline.params = raw

    def copied(self, root: Path) -> "Workspace":
        """A copy to change, without its checkpoints."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns(".codline"))
        return Workspace(root)

    def path(self, stage: str, argument: str, cycle: str | None = None) -> Path:
        return self.pipeline.path(stage, argument, cycle)

    def outputs(self, stage: str, cycle: str | None = None) -> list[Path]:
        lists = self.pipeline.stages[stage].get("do", self.pipeline.stages[stage])
        named = [
            entry if isinstance(entry, str) else next(iter(entry))
            for kind in ("outs", "metrics", "plots")
            for entry in lists.get(kind, [])
        ]
        return [self.root / name.replace("${key}", cycle or "") for name in named]

    def run(self, stage: str, cycle: str | None = None, **changes: Any) -> None:
        """Run a stage in this process, on the files that dvc.yaml names; `changes` replace single arguments."""
        spelled = self.pipeline.arguments(stage, cycle)
        arguments = {
            name.replace("-", "_"): value if name == "cycle" else Path(value) for name, value in spelled.items()
        }
        function(stage)(**resolved(function(stage), arguments | {"params": Path("params.yaml")} | changes))

    def command(self, stage: str, cycle: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a stage as DVC does."""
        words = [word for name, value in self.pipeline.arguments(stage, cycle).items() for word in (f"--{name}", value)]
        settings = os.environ | {"PYTHONPATH": str(REPOSITORY), "CODLINE_TRACKING": "off"} | environment
        return subprocess.run(
            [sys.executable, "-m", f"stages.{stage}", *words],
            cwd=self.root,
            env=settings,
            capture_output=True,
            text=True,
        )


def function(stage: str) -> Callable[..., None]:
    found: Callable[..., None] = getattr(import_module(f"stages.{stage}"), stage)
    return found


def created(root: Path) -> Workspace:
    """A small campaign's directory with nothing made yet."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(REPOSITORY / name, root / name)
    workspace = Workspace(root)
    workspace.change(**SMALL)
    return workspace
