"""Every stage: the same bytes in every run, one sentence for an unusable input, and no access to hidden labels."""

import pytest

from codline.core.errors import DataError, UserError
from codline.learning import model_file
from codline.models.small_cnn import SmallCnn
from stages.runner import STAGES, In, hints
from tests.workspace import Workspace, input_files, stage_function

# These have tests of their own: what scan reads is not made by a stage.
STAGES_BUT_REPORT = [stage for stage in STAGES if stage not in ("scan", "report")]
each_stage = pytest.mark.parametrize("stage", STAGES_BUT_REPORT)
READS_FILES = [stage for stage in STAGES_BUT_REPORT if stage != "prepare"]


def cycle_of(stage: str) -> str | None:
    return None if stage == "prepare" else "c2"


def inputs(stage: str) -> list[str]:
    return [name for name, hint in hints(stage_function(stage)).items() if hint is In]


@each_stage
def test_stage_writes_the_same_bytes_twice(workspace: Workspace, stage: str) -> None:
    outs = workspace.outputs(stage, cycle_of(stage))
    expected = [path.read_bytes() for path in outs]
    for path in outs:
        path.unlink()
    workspace.run(stage, cycle_of(stage))
    assert [path.read_bytes() for path in outs] == expected


@pytest.mark.parametrize("stage", READS_FILES)
def test_stage_names_a_missing_input(workspace: Workspace, stage: str) -> None:
    for name in inputs(stage):
        path = workspace.path(stage, name, "c2")
        path.rename(workspace.root / "moved")
        with pytest.raises(
            DataError,
            match=f"^{path.relative_to(workspace.root)}: not found; it is made by an earlier stage: run dvc repro$",
        ):
            workspace.run(stage, "c2")
        (workspace.root / "moved").rename(path)


@pytest.mark.parametrize("stage", READS_FILES)
def test_stage_names_an_input_that_is_another_table(workspace: Workspace, stage: str) -> None:
    for name, path in input_files(workspace, stage, "c2"):
        content = path.read_bytes()
        other = workspace.path("annotate", "query" if name == "annotations" else "annotations", "c1")
        if path.suffix == ".json":
            other = workspace.path("evaluate", "metrics", "c1")
        path.write_bytes(other.read_bytes())
        with pytest.raises(DataError, match=f"^{path.relative_to(workspace.root)}: "):
            workspace.run(stage, "c2")
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("stage", "argument"), [("train", "previous_model"), ("score", "model"), ("evaluate", "model")]
)
def test_stage_refuses_a_model_for_other_images(workspace: Workspace, stage: str, argument: str) -> None:
    path = workspace.path(stage, argument, "c2")
    spec = SmallCnn(width=4)
    model_file.save_network(
        path, spec.initial_network(3, (3, 32, 32), 0), model_file.ModelCard(spec.model_dump(), 3, (3, 32, 32), "c1", 1)
    )
    with pytest.raises(
        DataError,
        match=r"a model for 3 classes and images of \(3, 32, 32\), "
        r"but the dataset has 10 classes and images of \(1, 8, 8\)$",
    ):
        workspace.run(stage, "c2")


@each_stage
def test_stage_refuses_an_unknown_key_in_its_section(workspace: Workspace, stage: str) -> None:
    workspace.change(**{f"{stage}.unknown": 1})
    with pytest.raises(UserError, match=f"^params.yaml: {stage}.unknown: unknown key"):
        workspace.run(stage, cycle_of(stage))


@each_stage
def test_stage_ignores_the_sections_of_other_stages(workspace: Workspace, stage: str) -> None:
    outs = workspace.outputs(stage, cycle_of(stage))
    expected = [path.read_bytes() for path in outs]
    workspace.change(**{f"{other}.unknown": 1 for other in STAGES if other != stage})
    workspace.run(stage, cycle_of(stage))
    assert [path.read_bytes() for path in outs] == expected


def test_train_score_and_select_run_without_hidden_labels(workspace: Workspace) -> None:
    expected = {
        path: path.read_bytes() for stage in ("train", "score", "select") for path in workspace.outputs(stage, "c2")
    }
    workspace.path("prepare", "oracle").unlink()
    workspace.path("prepare", "test").unlink()
    for stage in ("train", "score", "select"):
        for path in workspace.outputs(stage, "c2"):
            path.unlink()
        workspace.run(stage, "c2")
    assert {path: path.read_bytes() for path in expected} == expected


def test_only_evaluate_needs_the_test_labels(workspace: Workspace) -> None:
    workspace.path("prepare", "test").unlink()
    for stage in STAGES_BUT_REPORT[1:]:
        if stage == "evaluate":
            with pytest.raises(DataError, match=r"data/test\.parquet: not found"):
                workspace.run(stage, "c2")
        else:
            workspace.run(stage, "c2")


@pytest.mark.parametrize(("file", "readers"), [("oracle", {"annotate", "diagnose"}), ("test", {"evaluate"})])
def test_hidden_labels_are_inputs_of_their_readers_only(workspace: Workspace, file: str, readers: set[str]) -> None:
    hidden = str(workspace.path("prepare", file).relative_to(workspace.root))
    cycles = {stage: None if stage in ("prepare", "report") else "c1" for stage in STAGES if stage != "scan"}
    assert {
        stage for stage in cycles if hidden in workspace.pipeline.arguments(stage, cycles[stage]).values()
    } == readers | {"prepare"}


def test_score_reads_the_true_labels_only_if_params_yaml_says_so(workspace: Workspace) -> None:
    hidden = workspace.path("prepare", "oracle")
    assert workspace.path("score", "truth", "c1") == workspace.path("prepare", "pool")
    workspace.change(**{"score.truth": "oracle"})
    assert [
        name for name in workspace.pipeline.arguments("score", "c1") if workspace.path("score", name, "c1") == hidden
    ] == ["truth"]
