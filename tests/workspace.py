"""A campaign's directory for tests, in which stages run as functions or as the commands that DVC runs."""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from codline.annotators.people import People
from codline.core import params
from codline.datasets import AnyDataset
from codline.runtime.pipeline import Pipeline
from stages.runner import KEYS, In, execute, hints, stage_arguments

REPOSITORY = Path(__file__).parents[1]
DVC_STAGES = Pipeline(REPOSITORY).stages
SMALL_PARAMS = {
    "prepare.dataset": {"name": "digits", "test": 0.2},
    "prepare.model": {"name": "small_cnn", "width": 4},
    "train.epochs": 3,
    "diagnose.bootstrap": 50,
    "diagnose.gradients": 10,
    "compute.threads": 1,
    "compute.device": "cpu",
} | params.cycle_chain(3)


class Workspace:
    """A directory with params.yaml, dvc.yaml and the files of a campaign. `run` needs it as the current directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pipeline = Pipeline(root)
        self.pipeline.stages = DVC_STAGES  # reading dvc.yaml for every test would take 0.1 s each

    def change(self, **dotted: Any) -> None:
        """Change params.yaml: change(**{"select.budget": 7})."""
        raw = params.read_yaml(self.root / "params.yaml")
        for key, value in dotted.items():
            *sections, name = key.split(".")
            section = raw
            for parent in sections:
                section = section[parent]
            section[name] = value
        with (self.root / "params.yaml").open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(raw, file)
        self.pipeline.params = raw

    def ask_people(self) -> None:
        """Make people the annotators, as `codline run -S` does."""
        queries = params.query_links(self.pipeline.params["cycles"], People().answers_file)
        self.change(**{"annotate.annotator": {"name": "people"}, "queries": queries})

    def copy_to(self, root: Path) -> "Workspace":
        """A copy to change, without checkpoints and notes."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns(".codline"))
        return Workspace(root)

    def path(self, stage: str, argument: str, cycle: str | None = None) -> Path:
        return self.pipeline.path(stage, argument, cycle)

    def outputs(self, stage: str, cycle: str | None = None) -> list[Path]:
        """The files that the stage writes; of a directory, those that are there."""
        definition = self.pipeline.stages[stage].get("do", self.pipeline.stages[stage])
        entries = [entry for kind in ("outs", "metrics", "plots") for entry in definition.get(kind, [])]
        names = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
        paths = [self.root / name.replace("${key}", cycle or "") for name in names]
        return [file for path in paths for file in files_of(path)]

    def run(self, stage: str, cycle: str | None = None, **changes: Any) -> None:
        """Run a stage in this process, on the files that dvc.yaml names; `changes` replace single arguments."""
        if stage == "prepare":
            self.scan_inputs()
        arguments = self.arguments(stage, cycle) | changes
        stage_function(stage)(**stage_arguments(stage_function(stage), arguments))

    def execute(self, stage: str, cycle: str | None = None) -> None:
        """The same with the checks and clean-up of stages/runner.py."""
        execute(stage_function(stage), self.arguments(stage, cycle), self.pipeline.params)

    def arguments(self, stage: str, cycle: str | None) -> dict[str, Any]:
        words = self.pipeline.arguments(stage, cycle)
        arguments = {name: value if name in KEYS else Path(value) for name, value in words.items()}
        return arguments | {"params": Path("params.yaml")}

    def scan_inputs(self) -> None:
        """Write the section `inputs` and the manifests, as `codline run` does before prepare."""
        with contextlib.suppress(ValidationError):  # which prepare will report
            dataset = TypeAdapter(AnyDataset).validate_python(self.pipeline.params["prepare"]["dataset"])
            self.change(inputs=dataset.input_paths())
        for manifest in (self.root / "data/inputs").glob("*.parquet"):
            manifest.unlink()
        for name in self.pipeline.inputs:
            self.run("scan", name)

    def command(self, stage: str, cycle: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a stage as DVC does."""
        arguments = self.pipeline.arguments(stage, cycle).items()
        words = [word for name, value in arguments for word in (f"--{name.replace('_', '-')}", value)]
        command = [sys.executable, "-m", "stages", stage, *words]
        settings = os.environ | {"PYTHONPATH": str(REPOSITORY), "CODLINE_TRACKING": "off"} | environment
        return subprocess.run(command, cwd=self.root, env=settings, capture_output=True, text=True)


def input_files(workspace: Workspace, stage: str, cycle: str) -> list[tuple[str, Path]]:
    """(argument, file) of the inputs of a stage; of a directory, all of its files."""
    names = [name for name, hint in hints(stage_function(stage)).items() if hint is In]
    return [(name, file) for name in names for file in files_of(workspace.path(stage, name, cycle))]


def files_of(path: Path) -> list[Path]:
    """The files of a directory; the path itself if it is none."""
    return sorted(path.rglob("*.*")) if path.is_dir() else [path]


def stage_function(stage: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(import_module(f"stages.{stage}"), stage)
    return function


def create_workspace(root: Path) -> Workspace:
    """A small campaign that has not run yet."""
    (root / "data/inputs").mkdir(parents=True)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(REPOSITORY / name, root / name)
    workspace = Workspace(root)
    workspace.change(**SMALL_PARAMS)
    return workspace
