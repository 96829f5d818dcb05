"""merge: old labels and new ones; whatever cannot be right is refused."""

import pyarrow as pa
import pytest

from codline.core.errors import DataError
from codline.data import tables
from tests.workspace import Workspace


def column(workspace: Workspace, argument: str, name: str = "id") -> list[int]:
    schema = {
        "previous_labeled": tables.LABELED,
        "annotations": tables.ANNOTATIONS,
        "pool": tables.POOL,
        "labeled": tables.LABELED,
    }[argument]
    values: list[int] = tables.read(workspace.path("merge", argument, "c1"), schema)[name].to_pylist()
    return values


def annotate(workspace: Workspace, ids: list[int], labels: list[int]) -> None:
    table = pa.table([ids, labels, ["somebody"] * len(ids)], schema=tables.ANNOTATIONS)
    tables.write(table, tables.ANNOTATIONS, workspace.path("merge", "annotations", "c1"))


@pytest.fixture
def unlabeled(workspace: Workspace) -> list[int]:
    return sorted(set(column(workspace, "pool")) - set(column(workspace, "previous_labeled")))


def refusal(workspace: Workspace) -> str:
    before = workspace.path("merge", "labeled", "c1").read_bytes()
    with pytest.raises(DataError) as refused:
        workspace.run("merge", "c1")
    assert workspace.path("merge", "labeled", "c1").read_bytes() == before
    return str(refused.value)


def test_new_labels_join_the_old_ones_in_the_order_of_ids(workspace: Workspace, unlabeled: list[int]) -> None:
    old = column(workspace, "previous_labeled")
    annotate(workspace, [unlabeled[5], unlabeled[0]], [3, 9])
    workspace.run("merge", "c1")
    merged = tables.read(workspace.path("merge", "labeled", "c1"), tables.LABELED).to_pylist()
    assert [row["id"] for row in merged] == sorted([*old, unlabeled[0], unlabeled[5]])
    fresh = {row["id"]: (row["label"], row["cycle"]) for row in merged if row["cycle"] != "init"}
    assert fresh == {unlabeled[5]: (3, "c1"), unlabeled[0]: (9, "c1")}


def test_no_new_label_is_no_mistake(workspace: Workspace) -> None:
    annotate(workspace, [], [])
    workspace.run("merge", "c1")
    assert column(workspace, "labeled") == column(workspace, "previous_labeled")


def test_merge_refuses_an_id_labeled_twice(workspace: Workspace, unlabeled: list[int]) -> None:
    twice = unlabeled[2]
    annotate(workspace, [twice, unlabeled[3], twice], [1, 2, 1])
    assert refusal(workspace) == f"cycles/c1/annotations.parquet: id {twice} is labelled twice"


def test_merge_refuses_an_id_that_has_a_label_already(workspace: Workspace) -> None:
    known = column(workspace, "previous_labeled")
    annotate(workspace, known[:3], [1, 2, 3])
    assert (
        refusal(workspace)
        == f"cycles/c1/annotations.parquet: id {known[0]} already has a label in cycles/init/labeled.parquet (and 2 more)"
    )


def test_merge_refuses_an_id_that_is_not_in_the_pool(workspace: Workspace) -> None:
    test = tables.read(workspace.path("evaluate", "test", "c1"), tables.TEST)["id"].to_pylist()
    annotate(workspace, test[:1], [1])
    assert refusal(workspace) == f"cycles/c1/annotations.parquet: id {test[0]} is not in data/pool.parquet"


@pytest.mark.parametrize("label", [-1, 10])
def test_merge_refuses_a_label_outside_the_classes(workspace: Workspace, unlabeled: list[int], label: int) -> None:
    annotate(workspace, unlabeled[:2], [0, label])
    assert refusal(workspace) == f"cycles/c1/annotations.parquet: id {unlabeled[1]} has label {label}, expected 0 to 9"
