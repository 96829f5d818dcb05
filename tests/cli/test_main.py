"""The command line: help with an example for each command, one sentence per mistake, exit codes for scripts."""

import contextlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from codline.cli.main import app
from codline.cli.options import parse_overrides
from codline.core.errors import UserError
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


def test_parse_overrides_reads_values_as_yaml() -> None:
    pairs = ["train.epochs=10", "train.learning_rate=5e-2", "train.augment.flip=true", "score.strategy={name: margin}"]
    assert parse_overrides(pairs) == {
        "train.epochs": 10,
        "train.learning_rate": 0.05,
        "train.augment.flip": True,
        "score.strategy": {"name": "margin"},
    }


@pytest.mark.parametrize("pair", ["train.epochs", "=3", ""])
def test_parse_overrides_refuses_a_missing_key_or_value(pair: str) -> None:
    with pytest.raises(UserError, match="expected key=value, such as"):
        parse_overrides([pair])


@pytest.mark.parametrize("value", ["{crop: 1", "[1,", "*x", "a: b: c", "2024-13-01", "!!python/name:os.system", "@"])
def test_parse_overrides_refuses_a_malformed_value_with_one_sentence(value: str) -> None:
    with pytest.raises(UserError, match=r"^-S train\.epochs=.*: the value is not valid YAML \(.*\); expected a value"):
        parse_overrides([f"train.epochs={value}"])


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


@pytest.mark.parametrize("words", ["run", "status", "verify", "query c1", "export x.csv", "presets", "doctor", "track"])
def test_command_outside_a_project_prints_one_sentence_exits_with_code_2_and_creates_nothing(
    tmp_path: Path, words: str
) -> None:
    command = [sys.executable, "-m", "codline.cli.main", *words.split()]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == UserError.exit_code
    assert re.fullmatch(r"codline: [\w.]+: not found; run this from the root of a codline project\n", done.stderr)
    assert list(tmp_path.iterdir()) == []
