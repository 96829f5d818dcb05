"""params.yaml, dvc.yaml and stages/ tell the same story, and every stage depends on the code that it runs, and on no other."""

import ast
import inspect
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from codline.core import params
from codline.runtime.pipeline import Pipeline
from stages.runner import STAGES, In, Out, hints
from tests.families import CHOSEN_BY
from tests.workspace import REPOSITORY, function

PIPELINE = Pipeline(REPOSITORY)
PARAMS = PIPELINE.params
ROOMS = ("stages", "codline")

each_stage = pytest.mark.parametrize("stage", PIPELINE.stages)


def body(stage: str) -> dict[str, Any]:
    """What dvc.yaml says of a stage, templates unresolved."""
    spelled: dict[str, Any] = PIPELINE.stages[stage].get("do", PIPELINE.stages[stage])
    return spelled


def arguments(stage: str, kind: Any) -> dict[str, str]:
    """The paths that cmd gives to the Ins, or the Outs, of the stage's signature."""
    given = PIPELINE.arguments(stage)
    return {name: given[name] for name, hint in hints(function(stage)).items() if hint is kind}


def listed(stage: str, *kinds: str) -> list[str]:
    return [
        entry if isinstance(entry, str) else next(iter(entry)) for kind in kinds for entry in body(stage).get(kind, [])
    ]


def is_code(path: str) -> bool:
    return path.split("/")[0] in ROOMS


def test_every_stage_of_dvc_yaml_is_a_file_and_the_reverse() -> None:
    files = {
        path.stem
        for path in (REPOSITORY / "stages").glob("*.py")
        if path.stem not in ("__init__", "__main__", "runner")
    }
    assert set(PIPELINE.stages) == files == set(STAGES)


def test_every_section_of_params_yaml_belongs_to_a_stage_or_to_all() -> None:
    assert set(PARAMS) == {*STAGES, *params.SHARED}


def test_the_cycles_of_params_yaml_are_a_chain() -> None:
    assert list(params.cycles(PARAMS)) == PIPELINE.cycles


@each_stage
def test_every_command_runs_the_stage_as_a_module(stage: str) -> None:
    assert shlex.split(body(stage)["cmd"])[:3] == ["python", "-m", f"stages.{stage}"]


@each_stage
def test_a_command_spells_every_argument_of_the_signature(stage: str) -> None:
    wanted = {name for name, hint in hints(function(stage)).items() if hint in (In, Out) or name == "cycle"}
    assert set(PIPELINE.arguments(stage)) == wanted


@each_stage
def test_a_stage_takes_a_cycle_where_dvc_yaml_unrolls_it(stage: str) -> None:
    assert ("foreach" in PIPELINE.stages[stage]) == ("cycle" in hints(function(stage)))
    assert PIPELINE.arguments(stage).get("cycle", "${key}") == "${key}"


@each_stage
def test_params_yaml_has_a_valid_section_for_every_stage(stage: str) -> None:
    params.section(PARAMS, stage, import_module(f"stages.{stage}").Params)


@each_stage
def test_a_stage_declares_just_the_parameters_it_takes(stage: str) -> None:
    shared = {name for name in params.SHARED if name in inspect.signature(function(stage)).parameters}
    shared |= {"queries"} if "cycles" in shared else set()  # they are checked against each other
    shared |= {"select"} if "budget" in inspect.signature(function(stage)).parameters else set()
    assert set(body(stage)["params"]) == shared | {stage}


@each_stage
def test_what_a_stage_reads_is_what_it_depends_on(stage: str) -> None:
    assert sorted(arguments(stage, In).values()) == sorted(path for path in listed(stage, "deps") if not is_code(path))


@each_stage
def test_what_a_stage_writes_is_what_dvc_keeps(stage: str) -> None:
    assert sorted(arguments(stage, Out).values()) == sorted(listed(stage, "outs", "metrics", "plots"))


@each_stage
def test_a_stage_depends_on_the_code_that_it_imports_and_on_no_other(stage: str) -> None:
    assert sorted(path for path in listed(stage, "deps") if is_code(path)) == sorted(code_of(stage))


@pytest.mark.parametrize("family", CHOSEN_BY)
def test_the_member_that_params_yaml_names_is_a_file(family: str) -> None:
    section, key = CHOSEN_BY[family].split(".")
    assert (REPOSITORY / "codline" / family / f"{PARAMS[section][key]['name']}.py").is_file()


def code_of(stage: str) -> set[str]:
    """The modules that a stage needs: all it imports, but of a family's members only the one that params.yaml names."""
    needed = set()
    for path in reached(f"stages/{stage}.py"):
        parts = path.split("/")
        family = parts[1] if parts[0] == "codline" and parts[1] in CHOSEN_BY else None
        if family and parts[2] == "__init__.py":
            needed.add(f"codline/{family}/${{{CHOSEN_BY[family]}.name}}.py")
        elif not (family and parts[2].removesuffix(".py") in registered(family)) and not is_docstring(path):
            needed.add(path)
    return needed | {
        resource
        for resource in resources()
        if any(Path(resource).name in source(path) for path in needed if "$" not in path)
    }


def resources() -> list[str]:
    """Files beside the code that are no code, such as templates; who uses one names it."""
    found = [
        path.relative_to(REPOSITORY) for room in ROOMS for path in (REPOSITORY / room).rglob("*") if path.is_file()
    ]
    return [str(path) for path in found if path.suffix != ".py" and "__pycache__" not in path.parts]


def source(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


def reached(start: str) -> set[str]:
    seen, waiting = set(), [start]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting.extend(imported(path))
    return seen


def imported(path: str) -> Iterator[str]:
    """The first-party files that a file imports, anywhere in it, with the packages they lie in."""
    for node in ast.walk(ast.parse(source(path))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            yield from files(name)


def files(module: str) -> Iterator[str]:
    parts = module.split(".")
    if parts[0] in ROOMS:
        for depth in range(1, len(parts) + 1):
            stem = Path(*parts[:depth])
            yield from (
                str(path) for path in (stem.with_suffix(".py"), stem / "__init__.py") if (REPOSITORY / path).is_file()
            )


def registered(family: str) -> set[str]:
    """The members' files: those that the union's file imports."""
    tree = ast.parse(source(f"codline/{family}/__init__.py"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {module.rpartition(".")[2] for module in modules if module.startswith(f"codline.{family}.")}


def is_docstring(path: str) -> bool:
    tree = ast.parse(source(path))
    return path.endswith("__init__.py") and all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in tree.body
    )
