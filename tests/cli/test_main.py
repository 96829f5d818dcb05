"""The command line: help with an example for each command, one sentence per mistake, exit codes for scripts."""

import contextlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from codline.cli.main import ANYWHERE, app
from codline.cli.options import parse_overrides
from codline.core.errors import UserError
from codline.engine.setting import EXPECTED
from codline.orchestration import presets
from codline.orchestration.params_file import params_changes
from tests.workspace import REPOSITORY

COMMANDS = [
    command.name or command.callback.__name__
    for command in app.registered_commands
    if command.callback and not command.hidden
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Example:" in result.output
    assert f"codline {command}" in " ".join(result.output.split())


def test_help_imports_neither_prefect_nor_dvc_nor_torch() -> None:
    code = "import sys, codline.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {"prefect", "dvc", "torch", "numpy", "mlflow"} & {*done.stdout.split()} == set()


def test_command_ends_with_its_code_although_something_waits_at_exit() -> None:
    code = """
import sys, threading
from codline.cli import main
main.EXIT_SECONDS = 0.5
threading.Thread(target=threading.Event().wait).start()  # Python waits for it
sys.argv[1:] = ["preset", "unknown"]
main.main()
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == UserError.exit_code
    assert "unknown" in done.stderr


@pytest.mark.parametrize("command", [["run"], ["study", "digits-strategies"]])
def test_unknown_engine_is_refused_before_anything_runs(command: list[str]) -> None:
    words = [sys.executable, "-m", "codline.cli.main", *command, "--engine", "spark"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stderr == f"codline: --engine or CODLINE_ENGINE: found 'spark', {EXPECTED}\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_parse_overrides_reads_values_as_yaml() -> None:
    pairs = ["train.epochs=10", "train.learning_rate=5e-2", "train.augment.flip=true", "score.strategy={name: margin}"]
    assert parse_overrides(pairs) == {
        "train.epochs": 10,
        "train.learning_rate": 0.05,
        "train.augment.flip": True,
        "score.strategy": {"name": "margin"},
    }


@given(st.text())
def test_parse_overrides_raises_no_other_error(text: str) -> None:
    with contextlib.suppress(UserError):
        parse_overrides([f"train.epochs={text}"])


def test_version_is_the_package_s() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"codline {version('codline')}\n")


def test_params_changes_merges_named_parameters_and_overrides() -> None:
    assert params_changes(None, None, None, None) == {}
    merged = params_changes("margin", 3, 2, {"train.epochs": 1})
    assert merged["score.strategy.name"] == "margin"
    assert merged["seed"] == 3
    assert list(merged["cycles"]) == ["c1", "c2"]
    assert list(merged["queries"]) == ["c1"]
    assert merged["train.epochs"] == 1


def test_presets_lists_every_preset_with_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    result = CliRunner().invoke(app, ["presets"])
    assert result.exit_code == 0
    rows = [line.split("│")[1:3] for line in result.output.splitlines() if "│" in line]
    listed = {name.strip(): about.strip() for name, about in rows if name.strip()}
    assert list(listed) == presets.names()
    assert all(listed.values())


PROJECT_COMMANDS = [command for command in COMMANDS if command not in ANYWHERE]
ARGUMENTS = {"query": "c1", "export": "x.csv", "preset": "digits", "study": "digits-strategies"}


@pytest.mark.parametrize("command", PROJECT_COMMANDS)
def test_command_outside_a_project_prints_one_sentence_exits_with_code_2_and_creates_nothing(
    tmp_path: Path, command: str
) -> None:
    folder = tmp_path / "project" / "folder"
    folder.mkdir(parents=True)
    expected = "codline: dvc.yaml: not found; run this from"
    assert run_outside(folder, command) == f"{expected} the root of a codline project\n"
    for name in ("dvc.yaml", "params.yaml"):
        (folder.parent / name).touch()
    assert run_outside(folder, command) == f"{expected} {folder.parent}, the root of this codline project\n"


def run_outside(folder: Path, command: str) -> str:
    words = [sys.executable, "-m", "codline.cli.main", command, *ARGUMENTS.get(command, "").split()]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == UserError.exit_code
    assert list(folder.iterdir()) == []
    return done.stderr


def test_commands_that_need_no_project_run_anywhere(tmp_path: Path) -> None:
    for words in (["strategies"], ["--version"], ["run", "--help"]):
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", "codline.cli.main", *words]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, env=environment)
