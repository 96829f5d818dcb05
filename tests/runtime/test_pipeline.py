"""dvc.yaml, read back: which file an argument means, and which stages a campaign has."""

from pathlib import Path

import pytest

from codline.core.errors import UserError
from tests.workspace import Workspace, created


def test_the_stages_of_a_campaign_come_one_cycle_after_the_other(tmp_path: Path) -> None:
    names = created(tmp_path).pipeline.names()
    cycle = ["train", "score", "select", "annotate", "merge", "evaluate", "diagnose"]
    assert names == [
        "prepare",
        *(f"{s}@c1" for s in cycle),
        *(f"{s}@c2" for s in cycle),
        "train@c3",
        "evaluate@c3",
        "report",
    ]


def test_the_last_cycle_asks_for_nothing(tmp_path: Path) -> None:
    pipeline = created(tmp_path).pipeline
    assert (pipeline.cycles, pipeline.queries) == (["c1", "c2", "c3"], ["c1", "c2"])


def test_what_one_cycle_writes_the_next_one_reads(tmp_path: Path) -> None:
    pipeline = created(tmp_path).pipeline
    assert (
        pipeline.path("merge", "labeled", "c1")
        == pipeline.path("train", "labeled", "c2")
        == pipeline.path("merge", "previous_labeled", "c2")
    )
    assert (
        pipeline.path("train", "model", "c1")
        == pipeline.path("train", "previous_model", "c2")
        == pipeline.path("score", "model", "c1")
    )
    assert pipeline.path("prepare", "model") == pipeline.path("train", "previous_model", "c1")
    assert pipeline.path("prepare", "outputs") == pipeline.path("score", "previous_outputs", "c1")


def test_every_file_that_a_finished_campaign_names_is_there(workspace: Workspace) -> None:
    for name in workspace.pipeline.names():
        stage, _, cycle = name.partition("@")
        if stage != "report":
            assert all(path.is_file() for path in workspace.outputs(stage, cycle or None))


def test_a_file_may_be_chosen_by_params_yaml(tmp_path: Path) -> None:
    workspace = created(tmp_path)
    workspace.change(**{"score.truth": "oracle"})
    assert workspace.path("score", "truth", "c1") == workspace.path("prepare", "oracle")
    workspace.change(score={"strategy": {"name": "cod"}})
    with pytest.raises(UserError, match=r"^params\.yaml: score\.truth: missing$"):
        workspace.path("score", "truth", "c1")
