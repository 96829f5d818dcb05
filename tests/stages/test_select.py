"""select: the images with the highest scores, best first, ties by id, and never more than there are."""

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
    tables.write_table(table, tables.SCORES, workspace.path("select", "scores", "c1"))


def read_query(workspace: Workspace) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = tables.read_table(workspace.path("select", "query", "c1"), tables.QUERY).to_pylist()
    return rows


def test_select_ranks_the_highest_scores(workspace: Workspace) -> None:
    write_scores(workspace, [0.1, 0.9, -3.0, 0.5])
    workspace.change(**{"select.budget": 3})
    workspace.run("select", "c1")
    assert read_query(workspace) == [
        {"id": 1, "rank": 1, "score": 0.9},
        {"id": 3, "rank": 2, "score": 0.5},
        {"id": 0, "rank": 3, "score": 0.1},
    ]


def test_select_breaks_ties_by_the_smaller_id(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, 0.5, 0.5, 0.5, 0.7], ids=[7, 8, 23, 40, 99])
    workspace.change(**{"select.budget": 4})
    workspace.run("select", "c1")
    assert [row["id"] for row in read_query(workspace)] == [99, 7, 8, 23]


@pytest.mark.parametrize(("ids", "wrong"), [([3, 9, 7], 7), ([3, 3, 9], 3)])
def test_select_refuses_scores_whose_ids_do_not_ascend(workspace: Workspace, ids: list[int], wrong: int) -> None:
    write_scores(workspace, [0.5, 0.1, 0.7], ids)
    workspace.change(**{"select.budget": 2})
    sentence = rf"scores\.parquet: id {wrong} comes after a larger one or twice, expected ids in their order$"
    with pytest.raises(DataError, match=sentence):
        workspace.run("select", "c1")


def test_select_gives_the_same_query_for_any_chunk_size(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.run("select", "c2")
    query = tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY)
    monkeypatch.setattr(tables, "READ_ROWS", 7)
    chunks = tables.read_chunks(workspace.path("select", "scores", "c2"), tables.SCORES)
    assert max(chunk.num_rows for chunk in chunks) == 7
    workspace.run("select", "c2")
    assert tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY).equals(query)


def test_select_takes_a_share_of_the_whole_pool(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 0.05})
    workspace.run("select", "c2")
    pool_size = tables.read_table(workspace.path("select", "pool", "c2"), tables.POOL).num_rows
    assert tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY).num_rows == round(0.05 * pool_size)


def test_select_refuses_a_score_that_is_nan(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, float("nan"), 0.1], ids=[3, 5, 8])
    workspace.change(**{"select.budget": 2})
    with pytest.raises(DataError, match=r"scores\.parquet: id 5 has no score \(NaN\)$"):
        workspace.run("select", "c1")


@pytest.mark.parametrize("budget", [2, 3])
def test_select_can_select_all_that_is_left(workspace: Workspace, budget: int) -> None:
    write_scores(workspace, [0.5, 0.4])
    workspace.change(**{"select.budget": budget})
    workspace.run("select", "c1")
    assert len(read_query(workspace)) == 2


def write_predictions(workspace: Workspace, classes: list[int]) -> None:
    """Write outputs that predict these classes for the ids 0, 1, 2, ..."""
    with output_store.output_writer(workspace.path("select", "outputs", "c1"), (10,), "c1") as write:
        write(np.arange(len(classes)), np.eye(10, dtype=np.float32)[classes])


def test_select_balances_predicted_classes(workspace: Workspace) -> None:
    write_scores(workspace, [0.9, 0.8, 0.7, 0.1, 0.2, 0.6])
    write_predictions(workspace, [4, 4, 4, 7, 7, 0])
    workspace.change(**{"select.budget": 5, "select.pick": {"name": "class_balanced"}})
    workspace.run("select", "c1")
    assert [(row["id"], row["score"]) for row in read_query(workspace)] == [
        (0, 0.9),
        (5, 0.6),
        (4, 0.2),
        (1, 0.8),
        (3, 0.1),
    ]


def test_select_names_a_scored_image_without_outputs(workspace: Workspace) -> None:
    write_scores(workspace, [0.9, 0.8, 0.7])
    write_predictions(workspace, [1, 1])
    workspace.change(**{"select.budget": 1, "select.pick": {"name": "class_balanced"}})
    with pytest.raises(DataError, match=r"outputs\.parquet: has no row with id 2$"):
        workspace.run("select", "c1")


def test_select_refuses_class_balance_for_segmentation(workspace: Workspace) -> None:
    path = workspace.path("select", "dataset", "c1")
    write_json(path, read_json(path) | {"task": "segmentation"})
    workspace.change(**{"select.pick": {"name": "class_balanced"}})
    sentence = r"select\.pick\.name: found 'class_balanced', which is not defined for segmentation"
    with pytest.raises(UserError, match=sentence):
        workspace.run("select", "c1")


def test_select_draws_differently_in_every_cycle_and_for_every_seed(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 20, "select.pick": {"name": "softmax", "beta": 0.001}})
    queries = []
    files = {name: workspace.path("select", name, "c2") for name in ("scores", "outputs")}
    for seed, cycle in ((0, "c1"), (1, "c1"), (0, "c2")):
        workspace.change(seed=seed)
        workspace.run("select", cycle, **files)
        queries.append(tables.read_table(workspace.path("select", "query", cycle), tables.QUERY)["id"].to_pylist())
    assert len({tuple(ids) for ids in queries}) == 3


@settings(max_examples=25)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.data())
def test_select_returns_the_first_ids_by_descending_score(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float], data: st.DataObject
) -> None:
    folder, budget = tmp_path_factory.mktemp("select"), data.draw(st.integers(1, len(scores)))
    ids = np.arange(len(scores))
    tables.write_table(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "scores")
    tables.write_table(pa.table([ids, [""] * len(ids)], schema=tables.POOL), tables.POOL, folder / "pool")
    info = {"task": "classification", "classes": ["a", "b"], "shape": [1, 1, 1], "mean": [0.0], "std": [1.0]}
    write_json(folder / "dataset", info)
    with output_store.output_writer(folder / "outputs", (2,), "c1") as write:
        write(ids, np.zeros((len(ids), 2), np.float32))
    files = {name: folder / name for name in ("dataset", "pool", "outputs", "scores", "query")}
    select(Params(budget=budget), seed=0, cycle="c1", **files)
    query = tables.read_table(folder / "query", tables.QUERY)["id"].to_pylist()
    assert query == sorted(ids.tolist(), key=lambda i: (-scores[i], i))[:budget]
