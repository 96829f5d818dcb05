"""The command line: help that shows an example each, one sentence per mistake, exit codes for scripts."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from codline.cli.main import app, overrides
from codline.cli.plugins import UNIONS, listed, members
from codline.core.errors import UserError
from codline.orchestration import presets
from flows.campaign import changes
from tests.workspace import REPOSITORY

COMMANDS = [
    command.name or command.callback.__name__
    for command in app.registered_commands
    if command.callback and not command.hidden
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"])
    assert said.exit_code == 0
    assert "Example:" in said.output
    assert f"codline {command}" in " ".join(said.output.split())


def test_values_are_read_as_yaml() -> None:
    read = overrides(
        ["train.epochs=10", "train.learning_rate=5e-2", "train.augment.flip=true", "score.strategy={name: margin}"]
    )
    assert read == {
        "train.epochs": 10,
        "train.learning_rate": 0.05,
        "train.augment.flip": True,
        "score.strategy": {"name": "margin"},
    }


@pytest.mark.parametrize("pair", ["train.epochs", "=3", ""])
def test_an_override_without_a_key_or_a_value_is_refused(pair: str) -> None:
    with pytest.raises(UserError, match="expected key=value, such as"):
        overrides([pair])


def test_named_parameters_become_changes_of_params_yaml() -> None:
    assert changes(None, None, None, None) == {}
    found = changes("margin", 3, 2, {"train.epochs": 1})
    assert found["score.strategy.name"] == "margin"
    assert found["seed"] == 3
    assert list(found["cycles"]) == ["c1", "c2"]
    assert list(found["queries"]) == ["c1"]
    assert found["train.epochs"] == 1


def test_every_preset_is_listed_with_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    said = CliRunner().invoke(app, ["presets"])
    assert said.exit_code == 0
    rows = [line.split("│")[1:3] for line in said.output.splitlines() if "│" in line]
    listed = {name.strip(): about.strip() for name, about in rows if name.strip()}
    assert list(listed) == presets.names()
    assert all(listed.values())


@pytest.mark.parametrize("family", UNIONS)
def test_every_member_of_a_family_is_listed_with_what_it_is(family: str) -> None:
    rows = listed(family)
    assert rows.row_count == len(members(family)) > 0
    assert all(str(cell) for cell in rows.columns[2].cells)


def test_a_directory_without_params_yaml_gets_one_sentence_and_exit_code_two(tmp_path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codline.cli.main", "status"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == UserError.exit_code
    assert done.stderr == "codline: params.yaml: not found; run this from the root of a codline project\n"
