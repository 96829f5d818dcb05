"""params.yaml, dvc.yaml and stages/ agree, and every stage depends on the code that decides its outputs."""

import ast
import inspect
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from codline.core import campaign_setup, params
from codline.runtime.pipeline import Pipeline
from stages.runner import KEYS, STAGES, In, Out, hints
from tests.families import PARAMS_KEY
from tests.workspace import REPOSITORY, stage_function

PIPELINE = Pipeline(REPOSITORY)
PARAMS = PIPELINE.params
CODE = ("stages", "codline")
# Parsing, process handling and progress decide no byte of an output. The golden test guards this list.
DECIDES_NO_BYTES = (
    *("codline/__init__.py", "codline/core", "codline/runtime", "codline/engine"),
    *("stages/__init__.py", "stages/runner.py"),
)
CHOOSES_THE_BEST_MODEL = "codline/core/primary_metric.py"

each_stage = pytest.mark.parametrize("stage", PIPELINE.stages)


def definition(stage: str) -> dict[str, Any]:
    """The stage in dvc.yaml, templates unresolved."""
    found: dict[str, Any] = PIPELINE.stages[stage].get("do", PIPELINE.stages[stage])
    return found


def paths_of(stage: str, kind: Any) -> list[str]:
    """The paths that cmd gives to the stage's parameters of type In, or Out."""
    arguments = PIPELINE.arguments(stage)
    return [arguments[name] for name, hint in hints(stage_function(stage)).items() if hint is kind]


def entries(stage: str, *kinds: str) -> list[str]:
    listed = [entry for kind in kinds for entry in definition(stage).get(kind, [])]
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in listed]


def is_code(path: str) -> bool:
    return path.split("/")[0] in CODE


def test_dvc_yaml_has_the_stages_that_are_files() -> None:
    others = ("__init__", "__main__", "runner", "check_params", "study_worker")
    files = {path.stem for path in (REPOSITORY / "stages").glob("*.py") if path.stem not in others}
    assert set(PIPELINE.stages) == files == set(STAGES)


def test_params_yaml_has_one_section_per_stage_and_the_shared_ones() -> None:
    assert set(PARAMS) == {*STAGES, *params.SHARED_SECTIONS}


def test_params_yaml_has_a_chain_of_cycles() -> None:
    assert list(params.parse_cycles(PARAMS)) == PIPELINE.cycles


@each_stage
def test_dvc_yaml_runs_a_stage_by_its_name(stage: str) -> None:
    assert shlex.split(definition(stage)["cmd"])[:4] == ["python", "-m", "stages", stage]


@each_stage
def test_dvc_yaml_passes_every_argument_of_the_signature(stage: str) -> None:
    signature = hints(stage_function(stage)).items()
    assert set(PIPELINE.arguments(stage)) == {name for name, hint in signature if hint in (In, Out) or name in KEYS}


@each_stage
def test_dvc_yaml_unrolls_the_stages_that_take_a_cycle_or_an_input(stage: str) -> None:
    keys = [name for name in KEYS if name in hints(stage_function(stage))]
    assert ("foreach" in PIPELINE.stages[stage]) == bool(keys)
    assert [PIPELINE.arguments(stage)[key] for key in keys] == ["${key}"] * len(keys)
    assert (PIPELINE.stages[stage].get("foreach") == "${inputs}") == (keys == ["input"])


@each_stage
def test_params_yaml_has_a_valid_section_for_every_stage(stage: str) -> None:
    params.parse_section(PARAMS, stage, import_module(f"stages.{stage}").Params)


@each_stage
def test_dvc_yaml_tracks_the_parameters_that_a_stage_takes(stage: str) -> None:
    parameters = inspect.signature(stage_function(stage)).parameters
    shared = {name for name in params.SHARED_SECTIONS if name in parameters}
    shared = {f"{name}.${{key}}" if name == "inputs" and "input" in parameters else name for name in shared}
    shared |= {"select.budget"} if "budget" in parameters else set()
    shared |= set(campaign_setup.KEYS) if "setup" in parameters else set()
    assert set(definition(stage)["params"]) == shared | {stage}


@each_stage
def test_dvc_yaml_lists_what_a_stage_reads(stage: str) -> None:
    listed = [path for path in entries(stage, "deps") if not is_code(path)]
    assert sorted(paths_of(stage, In)) == sorted(path for path in listed if path != "${item}")
    assert ("${item}" in listed) == (stage == "scan")  # a path of params.yaml, which is not on the command line


@each_stage
def test_dvc_yaml_lists_what_a_stage_writes(stage: str) -> None:
    assert sorted(paths_of(stage, Out)) == sorted(entries(stage, "outs", "metrics", "plots"))


@each_stage
def test_dvc_yaml_lists_the_code_that_decides_a_stage_s_outputs_and_no_other(stage: str) -> None:
    listed = [path for path in entries(stage, "deps") if is_code(path)]
    needed = {path for path in needed_code(stage) if not is_within(path, DECIDES_NO_BYTES)}
    needed |= needed_code(stage) & {CHOOSES_THE_BEST_MODEL}
    assert {path for path in needed if not is_within(path, listed)} == set()
    assert [path for path in listed if not any(is_within(each, [path]) for each in needed)] == []


def is_within(path: str, roots: tuple[str, ...] | list[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(root) for root in roots)


@pytest.mark.parametrize("family", PARAMS_KEY)
def test_params_yaml_names_a_plug_in_that_is_a_file(family: str) -> None:
    section, key = PARAMS_KEY[family].split(".")
    named = PARAMS[section][key]
    for plugin in named if isinstance(named, list) else [named]:
        assert (REPOSITORY / "codline" / family / f"{plugin['name']}.py").is_file()


def needed_code(stage: str) -> set[str]:
    """The modules that a stage imports; of a family's plug-ins only the one that params.yaml names.

    Of the objectives, of which it names a list, all count.
    """
    needed = set()
    for path in reachable_from(f"stages/{stage}.py"):
        parts = path.split("/")
        family = parts[1] if parts[0] == "codline" and parts[1] in PARAMS_KEY else None
        if family == "objectives":
            needed.add(path)
        elif family and parts[2] == "__init__.py":
            needed.add(f"codline/{family}/${{{PARAMS_KEY[family]}.name}}.py")
        elif not (family and parts[2].removesuffix(".py") in plug_ins(family)):
            needed.add(path)
    return needed


def reachable_from(start: str) -> set[str]:
    seen, pending = set(), [start]
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            pending.extend(imported_files(path))
    return seen


def imported_files(path: str) -> Iterator[str]:
    """The first-party files that a file imports, anywhere in it, with the packages that contain them."""
    for node in ast.walk(ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            yield from module_files(name)


def module_files(module: str) -> Iterator[str]:
    parts = module.split(".")
    for depth in range(1, len(parts) + 1) if parts[0] in CODE else ():
        stem = Path(*parts[:depth])
        yield from (
            str(path) for path in (stem.with_suffix(".py"), stem / "__init__.py") if (REPOSITORY / path).is_file()
        )


def plug_ins(family: str) -> set[str]:
    """The files of the plug-ins: those that the family's union imports."""
    tree = ast.parse((REPOSITORY / f"codline/{family}/__init__.py").read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {module.rpartition(".")[2] for module in modules if module.startswith(f"codline.{family}.")}
