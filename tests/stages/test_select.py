"""select: the most wanted images, best first; ties by id; never more than there are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from codline.core.errors import DataError, UserError
from codline.core.files import read_json, write_json
from codline.data import output_store, tables
from stages.select import Params, select
from tests.workspace import Workspace


def write_scores(workspace: Workspace, scores: list[float], ids: list[int] | None = None) -> None:
    table = pa.table([ids or list(range(len(scores))), scores], schema=tables.SCORES)
    tables.write(table, tables.SCORES, workspace.path("select", "scores", "c1"))


def query(workspace: Workspace) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = tables.read(workspace.path("select", "query", "c1"), tables.QUERY).to_pylist()
    return rows


def test_the_highest_scores_are_asked_for_best_first(workspace: Workspace) -> None:
    write_scores(workspace, [0.1, 0.9, -3.0, 0.5])
    workspace.change(**{"select.budget": 3})
    workspace.run("select", "c1")
    assert query(workspace) == [
        {"id": 1, "rank": 1, "score": 0.9},
        {"id": 3, "rank": 2, "score": 0.5},
        {"id": 0, "rank": 3, "score": 0.1},
    ]


def test_ties_go_to_the_smaller_id(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, 0.5, 0.5, 0.5, 0.7], ids=[7, 8, 23, 40, 99])
    workspace.change(**{"select.budget": 4})
    workspace.run("select", "c1")
    assert [row["id"] for row in query(workspace)] == [99, 7, 8, 23]


@pytest.mark.parametrize(("ids", "strange"), [([3, 9, 7], 7), ([3, 3, 9], 3)])
def test_scores_whose_ids_are_not_in_order_are_refused(workspace: Workspace, ids: list[int], strange: int) -> None:
    write_scores(workspace, [0.5, 0.1, 0.7], ids)
    workspace.change(**{"select.budget": 2})
    with pytest.raises(
        DataError,
        match=rf"scores\.parquet: id {strange} comes after a larger one or twice, expected ids in their order$",
    ):
        workspace.run("select", "c1")


def test_scores_are_read_a_stretch_at_a_time(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.run("select", "c2")
    whole = tables.read(workspace.path("select", "query", "c2"), tables.QUERY)
    monkeypatch.setattr(tables, "STRETCH", 7)
    assert {
        batch.num_rows for batch in tables.stretches(workspace.path("select", "scores", "c2"), tables.SCORES)
    } <= set(range(1, 8))
    workspace.run("select", "c2")
    assert tables.read(workspace.path("select", "query", "c2"), tables.QUERY).equals(whole)


def test_a_share_counts_from_the_whole_pool(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 0.05})
    workspace.run("select", "c2")
    everyone = tables.read(workspace.path("select", "pool", "c2"), tables.POOL).num_rows
    assert tables.read(workspace.path("select", "query", "c2"), tables.QUERY).num_rows == round(0.05 * everyone)


def test_a_score_that_is_not_a_number_is_refused(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, float("nan"), 0.1], ids=[3, 5, 8])
    workspace.change(**{"select.budget": 2})
    with pytest.raises(DataError, match=r"scores\.parquet: id 5 has no score \(NaN\)$"):
        workspace.run("select", "c1")


def test_a_budget_larger_than_what_is_unlabelled_is_refused(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, 0.4])
    workspace.change(**{"select.budget": 3})
    with pytest.raises(UserError) as refused:
        workspace.run("select", "c1")
    assert str(refused.value) == "params.yaml: select.budget: found 3 images, but only 2 of the pool are unlabelled"


def test_everything_that_is_left_can_be_asked_for(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, 0.4])
    workspace.change(**{"select.budget": 2})
    workspace.run("select", "c1")
    assert len(query(workspace)) == 2


def said(workspace: Workspace, classes: list[int]) -> None:
    """Write outputs that predict these classes for the ids 0, 1, 2, ..."""
    with output_store.writing(workspace.path("select", "outputs", "c1"), (10,), "c1") as keep:
        keep(np.arange(len(classes)), np.eye(10, dtype=np.float32)[classes])


def test_classes_are_balanced_by_what_the_model_predicts(workspace: Workspace) -> None:
    write_scores(workspace, [0.9, 0.8, 0.7, 0.1, 0.2, 0.6])
    said(workspace, [4, 4, 4, 7, 7, 0])
    workspace.change(**{"select.budget": 5, "select.pick": {"name": "class_balanced"}})
    workspace.run("select", "c1")
    assert [(row["id"], row["score"]) for row in query(workspace)] == [(0, 0.9), (5, 0.6), (4, 0.2), (1, 0.8), (3, 0.1)]


def test_a_scored_image_without_outputs_is_named(workspace: Workspace) -> None:
    write_scores(workspace, [0.9, 0.8, 0.7])
    said(workspace, [1, 1])
    workspace.change(**{"select.budget": 1, "select.pick": {"name": "class_balanced"}})
    with pytest.raises(DataError, match=r"outputs\.parquet: has no row with id 2$"):
        workspace.run("select", "c1")


def test_segmentation_has_no_classes_to_balance(workspace: Workspace) -> None:
    path = workspace.path("select", "dataset", "c1")
    write_json(path, read_json(path) | {"task": "segmentation"})
    workspace.change(**{"select.pick": {"name": "class_balanced"}})
    with pytest.raises(
        UserError, match=r"select\.pick\.name: found 'class_balanced', which is not defined for segmentation"
    ):
        workspace.run("select", "c1")


def test_a_draw_is_another_one_in_every_cycle_and_for_every_seed(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 20, "select.pick": {"name": "softmax", "beta": 0.001}})
    drawn = []
    for seed, cycle in ((0, "c1"), (1, "c1"), (0, "c2")):
        workspace.change(seed=seed)
        workspace.run(
            "select",
            cycle,
            scores=workspace.path("select", "scores", "c2"),
            outputs=workspace.path("select", "outputs", "c2"),
        )
        drawn.append(tables.read(workspace.path("select", "query", cycle), tables.QUERY)["id"].to_pylist())
    assert len({tuple(ids) for ids in drawn}) == 3


@settings(max_examples=25)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.data())
def test_nobody_left_out_is_more_wanted_than_anybody_asked(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float], data: st.DataObject
) -> None:
    folder, budget = tmp_path_factory.mktemp("select"), data.draw(st.integers(1, len(scores)))
    ids = np.arange(len(scores))
    tables.write(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "scores")
    tables.write(pa.table([ids, [""] * len(ids)], schema=tables.POOL), tables.POOL, folder / "pool")
    write_json(
        folder / "dataset",
        {"task": "classification", "classes": ["a", "b"], "shape": [1, 1, 1], "mean": [0.0], "std": [1.0]},
    )
    with output_store.writing(folder / "outputs", (2,), "c1") as keep:
        keep(ids, np.zeros((len(ids), 2), np.float32))
    files = {name: folder / name for name in ("dataset", "pool", "outputs", "scores", "query")}
    select(Params(budget=budget), seed=0, cycle="c1", **files)
    asked = tables.read(folder / "query", tables.QUERY)["id"].to_pylist()
    assert asked == sorted(ids.tolist(), key=lambda i: (-scores[i], i))[:budget]
