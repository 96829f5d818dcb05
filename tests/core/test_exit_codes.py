"""A stage that cannot go on leaves with one sentence, an exit code for scripts, and a note for the flow."""

import json
from pathlib import Path

import pytest

from codline.core import errors
from codline.learning import model_file
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace


def refusal(workspace: Workspace, stage: str, code: int) -> str:
    """The one line that a stage writes when it refuses; the note must say the same."""
    done = workspace.command(stage, "c2")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    sentence = line.removeprefix(f"codline: {stage}@c2: ")
    assert json.loads(Path(f".codline/error/{stage}@c2.json").read_text()) == {"sentence": sentence, "exit_code": code}
    return sentence


def test_an_unknown_key_exits_with_2(workspace: Workspace) -> None:
    workspace.change(**{"select.bugdet": 5})
    assert refusal(workspace, "select", 2) == "params.yaml: select.bugdet: unknown key; did you mean budget?"


def test_a_wrong_type_exits_with_2(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": "many"})
    assert refusal(workspace, "select", 2).startswith(
        "params.yaml: select.budget: found 'many', expected a share of the pool"
    )


def test_a_budget_larger_than_the_pool_exits_with_2(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 99999})
    assert refusal(workspace, "select", 2).startswith("params.yaml: select.budget: found 99999 images, but only ")


def test_a_missing_file_exits_with_3(workspace: Workspace) -> None:
    workspace.path("merge", "annotations", "c2").unlink()
    assert (
        refusal(workspace, "merge", 3)
        == "cycles/c2/annotations.parquet: not found; it is made by an earlier stage: run dvc repro"
    )


@pytest.mark.slow
def test_a_corrupt_arrow_file_exits_with_3(workspace: Workspace) -> None:
    path = workspace.path("diagnose", "outputs", "c2")
    path.write_bytes(path.read_bytes()[:-200] + b"\xff" * 200)
    assert refusal(workspace, "diagnose", 3).startswith("cycles/c2/outputs.parquet: corrupt or truncated (")


@pytest.mark.slow
def test_a_model_of_the_wrong_shape_exits_with_3(workspace: Workspace) -> None:
    spec = SmallCnn(width=4)
    path = workspace.path("train", "previous", "c2")
    model_file.save_network(
        path, spec.initial(3, (1, 8, 8), 0), model_file.Card(spec.model_dump(), 3, (1, 8, 8), "c1", 1)
    )
    assert refusal(workspace, "train", 3).startswith("cycles/c1/model.safetensors: a model for 3 classes")


def test_a_run_that_works_takes_the_old_error_away_and_leaves_its_time(workspace: Workspace) -> None:
    workspace.change(**{"select.bugdet": 5})
    refusal(workspace, "select", 2)
    workspace.change(select={"budget": 5})
    done = workspace.command("select", "c2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not Path(".codline/error/select@c2.json").exists()
    assert json.loads(Path(".codline/seconds/select@c2.json").read_text())["seconds"] > 0


def test_every_error_has_an_exit_code_of_its_own() -> None:
    assert sorted(errors.BY_EXIT_CODE) == [2, 3, 4, 5, 6, 7, 130]
    assert all(kind.exit_code == code for code, kind in errors.BY_EXIT_CODE.items())


@pytest.mark.slow
def test_every_stage_as_a_command_writes_what_it_writes_in_this_process(workspace: Workspace) -> None:
    for name in workspace.pipeline.names():
        stage, _, cycle = name.partition("@")
        if stage != "report" and cycle in ("", "c2"):
            outs = workspace.outputs(stage, cycle or None)
            expected = [path.read_bytes() for path in outs]
            for path in outs:
                path.unlink()
            assert workspace.command(stage, cycle or None).returncode == 0
            assert [path.read_bytes() for path in outs] == expected
