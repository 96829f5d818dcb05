"""Pipeline: stages and files as dvc.yaml defines them."""

from pathlib import Path

import pytest

from codline.core.errors import UserError
from tests.workspace import Workspace, create_workspace


def test_stage_names_are_in_the_order_of_the_cycles(tmp_path: Path) -> None:
    names = create_workspace(tmp_path).pipeline.stage_names()
    cycle = ["train", "score", "select", "annotate", "merge", "evaluate", "diagnose"]
    first_cycles = [f"{stage}@{name}" for name in ("c1", "c2") for stage in cycle]
    assert names == ["prepare", *first_cycles, "train@c3", "evaluate@c3", "report"]


def test_queries_are_the_cycles_without_the_last(tmp_path: Path) -> None:
    pipeline = create_workspace(tmp_path).pipeline
    assert (pipeline.cycles, pipeline.queries) == (["c1", "c2", "c3"], ["c1", "c2"])


def test_path_of_an_input_is_the_output_of_the_previous_cycle(tmp_path: Path) -> None:
    pipeline = create_workspace(tmp_path).pipeline
    labeled, model = pipeline.path("merge", "labeled", "c1"), pipeline.path("train", "model", "c1")
    assert labeled == pipeline.path("train", "labeled", "c2") == pipeline.path("merge", "previous_labeled", "c2")
    assert model == pipeline.path("train", "previous_model", "c2") == pipeline.path("score", "model", "c1")
    assert pipeline.path("prepare", "model") == pipeline.path("train", "previous_model", "c1")
    assert pipeline.path("prepare", "outputs") == pipeline.path("score", "previous_outputs", "c1")


def test_outputs_of_a_finished_campaign_exist(workspace: Workspace) -> None:
    for name in workspace.pipeline.stage_names():
        stage, _, cycle = name.partition("@")
        if stage != "report":
            assert all(path.is_file() for path in workspace.outputs(stage, cycle or None))


def test_path_may_depend_on_params_yaml(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    workspace.change(**{"score.truth": "oracle"})
    assert workspace.path("score", "truth", "c1") == workspace.path("prepare", "oracle")
    workspace.change(score={"strategy": {"name": "cod"}})
    with pytest.raises(UserError, match=r"^params\.yaml: score\.truth: missing$"):
        workspace.path("score", "truth", "c1")
