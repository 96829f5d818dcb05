"""select: the most wanted images, best first; ties by id; never more than there are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from codline import tables
from codline.errors import DataError, UserError
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
    assert query(workspace) == [{"id": 1, "rank": 1, "score": 0.9}, {"id": 3, "rank": 2, "score": 0.5}, {"id": 0, "rank": 3, "score": 0.1}]


def test_ties_go_to_the_smaller_id_whatever_the_order_of_the_rows(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, 0.5, 0.5, 0.7, 0.5], ids=[40, 7, 23, 99, 8])
    workspace.change(**{"select.budget": 4})
    workspace.run("select", "c1")
    assert [row["id"] for row in query(workspace)] == [99, 7, 8, 23]


def test_a_share_counts_from_the_whole_pool(workspace: Workspace) -> None:
    workspace.change(**{"select.budget": 0.05})
    workspace.run("select", "c2")
    everyone = tables.read(workspace.path("select", "pool", "c2"), tables.POOL).num_rows
    assert tables.read(workspace.path("select", "query", "c2"), tables.QUERY).num_rows == round(0.05 * everyone)


def test_a_score_that_is_not_a_number_is_refused(workspace: Workspace) -> None:
    write_scores(workspace, [0.5, float("nan"), 0.1], ids=[3, 5, 8])
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


@settings(max_examples=25)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.data())
def test_nobody_left_out_is_more_wanted_than_anybody_asked(tmp_path_factory: pytest.TempPathFactory, scores: list[float], data: st.DataObject) -> None:
    folder, budget = tmp_path_factory.mktemp("select"), data.draw(st.integers(1, len(scores)))
    ids = np.arange(len(scores))
    tables.write(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "scores")
    tables.write(pa.table([ids, [""] * len(ids)], schema=tables.POOL), tables.POOL, folder / "pool")
    select(Params(budget=budget), cycle="c1", pool=folder / "pool", scores=folder / "scores", query=folder / "query")
    asked = tables.read(folder / "query", tables.QUERY)["id"].to_pylist()
    assert asked == sorted(ids.tolist(), key=lambda i: (-scores[i], i))[:budget]
