"""A stage that fails prints one sentence, writes it to an error note, and exits with the code of its error."""

from pathlib import Path

import pytest

from codline.core import errors
from codline.learning import model_file
from codline.models.small_cnn import SmallCnn
from codline.runtime import state_directory
from tests.workspace import Workspace


def run_failing(workspace: Workspace, stage: str, code: int) -> str:
    """Run a stage that must fail with this exit code; return its error sentence, which the note must repeat."""
    done = workspace.command(stage, "c2")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    sentence = line.removeprefix(f"codline: {stage}@c2: ")
    assert state_directory.read_note("error", f"{stage}@c2") == {"sentence": sentence, "exit_code": code}
    return sentence


def test_exit_code_of_an_unknown_key_is_2(workspace: Workspace) -> None:
    workspace.change(**{"select.bugdet": 5})
    assert run_failing(workspace, "select", 2) == "params.yaml: select.bugdet: unknown key; did you mean budget?"


def test_exit_code_of_a_wrong_type_is_2(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": "many"})
    assert run_failing(workspace, "select", 2).startswith(
        "params.yaml: select.budget: found 'many', expected a share of the pool"
    )


def test_exit_code_of_a_budget_larger_than_the_pool_is_2(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 99999})
    assert run_failing(workspace, "select", 2).startswith(
        "params.yaml: select.budget: found 99999 images, but the pool has only "
    )


def test_exit_code_of_a_missing_file_is_3(workspace: Workspace) -> None:
    workspace.path("merge", "annotations", "c2").unlink()
    sentence = "cycles/c2/annotations.parquet: not found; it is made by an earlier stage: run dvc repro"
    assert run_failing(workspace, "merge", 3) == sentence


@pytest.mark.slow
def test_exit_code_of_a_corrupt_file_is_3(workspace: Workspace) -> None:
    path = workspace.path("diagnose", "outputs", "c2")
    path.write_bytes(path.read_bytes()[:-200] + b"\xff" * 200)
    assert run_failing(workspace, "diagnose", 3).startswith("cycles/c2/outputs.parquet: corrupt or truncated (")


@pytest.mark.slow
def test_exit_code_of_a_model_for_other_images_is_3(workspace: Workspace) -> None:
    spec = SmallCnn(width=4)
    path = workspace.path("train", "previous_model", "c2")
    model_file.save_network(
        path, spec.initial_network(3, (1, 8, 8), 0), model_file.ModelCard(spec.model_dump(), 3, (1, 8, 8), "c1", 1)
    )
    assert run_failing(workspace, "train", 3).startswith("cycles/c1/model.safetensors: a model for 3 classes")


def test_stage_that_succeeds_deletes_the_error_note_and_writes_its_seconds(workspace: Workspace) -> None:
    workspace.change(**{"select.bugdet": 5})
    run_failing(workspace, "select", 2)
    workspace.change(select={"budget": 5})
    done = workspace.command("select", "c2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not Path(".codline/error/select@c2.json").exists()
    assert (state_directory.read_note("seconds", "select@c2") or {})["seconds"] > 0


def test_errors_have_distinct_exit_codes() -> None:
    assert sorted(errors.BY_EXIT_CODE) == [2, 3, 4, 5, 6, 7, 8, 9, 130]
    assert all(kind.exit_code == code for code, kind in errors.BY_EXIT_CODE.items())


def test_error_that_was_raised_from_itself_has_one_cause() -> None:
    error = errors.UserError("wrong")
    error.__cause__ = error
    assert list(errors.causes(error)) == [error]


@pytest.mark.slow
def test_stages_write_the_same_bytes_as_commands_and_as_functions(workspace: Workspace) -> None:
    for name in workspace.pipeline.stage_names():
        stage, _, cycle = name.partition("@")
        if stage != "report" and cycle in ("", "c2"):
            outputs = workspace.outputs(stage, cycle or None)
            expected = [path.read_bytes() for path in outputs]
            for path in outputs:
                path.unlink()
            assert workspace.command(stage, cycle or None).returncode == 0
            assert [path.read_bytes() for path in outputs] == expected
