"""merge: adds annotations to the labels, and refuses those that cannot be right."""

import pyarrow as pa
import pytest

from codline.core.errors import DataError
from codline.data import tables
from tests.workspace import Workspace


def read_column(workspace: Workspace, argument: str, name: str = "id") -> list[int]:
    schema = {
        "previous_labeled": tables.LABELED,
        "annotations": tables.ANNOTATIONS,
        "pool": tables.POOL,
        "labeled": tables.LABELED,
    }[argument]
    values: list[int] = tables.read_table(workspace.path("merge", argument, "c1"), schema)[name].to_pylist()
    return values


def write_annotations(workspace: Workspace, ids: list[int], labels: list[int]) -> None:
    table = pa.table([ids, labels, ["somebody"] * len(ids)], schema=tables.ANNOTATIONS)
    tables.write_table(table, tables.ANNOTATIONS, workspace.path("merge", "annotations", "c1"))


@pytest.fixture
def unlabeled(workspace: Workspace) -> list[int]:
    return sorted(set(read_column(workspace, "pool")) - set(read_column(workspace, "previous_labeled")))


def run_failing(workspace: Workspace) -> str:
    """Run merge, which must fail and write nothing; return the error sentence."""
    before = workspace.path("merge", "labeled", "c1").read_bytes()
    with pytest.raises(DataError) as refused:
        workspace.run("merge", "c1")
    assert workspace.path("merge", "labeled", "c1").read_bytes() == before
    return str(refused.value)


def test_merge_sorts_old_and_new_labels_by_id(workspace: Workspace, unlabeled: list[int]) -> None:
    old = read_column(workspace, "previous_labeled")
    write_annotations(workspace, [unlabeled[5], unlabeled[0]], [3, 9])
    workspace.run("merge", "c1")
    merged = tables.read_table(workspace.path("merge", "labeled", "c1"), tables.LABELED).to_pylist()
    assert [row["id"] for row in merged] == sorted([*old, unlabeled[0], unlabeled[5]])
    added = {row["id"]: (row["label"], row["cycle"]) for row in merged if row["cycle"] != "init"}
    assert added == {unlabeled[5]: (3, "c1"), unlabeled[0]: (9, "c1")}


def test_merge_accepts_no_annotations(workspace: Workspace) -> None:
    write_annotations(workspace, [], [])
    workspace.run("merge", "c1")
    assert read_column(workspace, "labeled") == read_column(workspace, "previous_labeled")


def test_merge_refuses_an_id_labeled_twice(workspace: Workspace, unlabeled: list[int]) -> None:
    twice = unlabeled[2]
    write_annotations(workspace, [twice, unlabeled[3], twice], [1, 2, 1])
    assert run_failing(workspace) == f"cycles/c1/annotations.parquet: id {twice} occurs more than once"


def test_merge_refuses_an_id_that_has_a_label_already(workspace: Workspace) -> None:
    known = read_column(workspace, "previous_labeled")
    write_annotations(workspace, known[:3], [1, 2, 3])
    problem = f"id {known[0]} already has a label in cycles/init/labeled.parquet (and 2 more)"
    assert run_failing(workspace) == f"cycles/c1/annotations.parquet: {problem}"


def test_merge_refuses_an_id_that_is_not_in_the_pool(workspace: Workspace) -> None:
    test = tables.read_table(workspace.path("evaluate", "test", "c1"), tables.TEST)["id"].to_pylist()
    write_annotations(workspace, test[:1], [1])
    assert run_failing(workspace) == f"cycles/c1/annotations.parquet: id {test[0]} is not in data/pool.parquet"


@pytest.mark.parametrize("label", [-1, 10])
def test_merge_refuses_a_label_outside_the_classes(workspace: Workspace, unlabeled: list[int], label: int) -> None:
    write_annotations(workspace, unlabeled[:2], [0, label])
    assert (
        run_failing(workspace) == f"cycles/c1/annotations.parquet: id {unlabeled[1]} has label {label}, expected 0 to 9"
    )
