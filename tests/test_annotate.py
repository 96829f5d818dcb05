"""annotate: the simulated annotator answers from the oracle, errs on its own random stream, and counts what it was asked."""

import json

import pytest

from codline import tables
from codline.errors import DataError
from tests.workspace import Workspace


def answers(workspace: Workspace, cycle: str = "c1") -> dict[int, int]:
    table = tables.read(workspace.path("annotate", "annotations", cycle), tables.ANNOTATIONS)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def truth(workspace: Workspace) -> dict[int, int]:
    table = tables.read(workspace.path("annotate", "oracle", "c1"), tables.ORACLE)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def cost(workspace: Workspace) -> dict[str, int]:
    found: dict[str, int] = json.loads(workspace.path("annotate", "cost", "c1").read_text())
    return found


def test_every_image_asked_for_gets_its_true_label(workspace: Workspace) -> None:
    asked = tables.read(workspace.path("annotate", "query", "c1"), tables.QUERY)["id"].to_pylist()
    known = truth(workspace)
    assert answers(workspace) == {i: known[i] for i in asked}
    assert cost(workspace) == {"asked": len(asked), "answered": len(asked), "wrong": 0}


def test_noise_is_counted_and_differs_from_cycle_to_cycle(workspace: Workspace) -> None:
    workspace.change(**{"annotate.annotator.noise": 0.5})
    for cycle in ("c1", "c2"):
        workspace.run("annotate", cycle)
    known = truth(workspace)
    wrong = [label != known[i] for i, label in answers(workspace).items()]
    assert cost(workspace)["wrong"] == sum(wrong) > 0
    assert [label != known[i] for i, label in answers(workspace, "c2").items()] != wrong


def test_noise_leaves_the_other_streams_alone(workspace: Workspace) -> None:
    kept = [path.read_bytes() for path in (*workspace.outputs("prepare"), *workspace.outputs("score", "c1"))]
    workspace.change(**{"annotate.annotator.noise": 0.5})
    workspace.run("prepare")
    workspace.run("score", "c1")
    assert [path.read_bytes() for path in (*workspace.outputs("prepare"), *workspace.outputs("score", "c1"))] == kept


def test_an_oracle_that_does_not_know_the_image_is_refused(workspace: Workspace) -> None:
    path = workspace.path("annotate", "oracle", "c1")
    asked = tables.read(workspace.path("annotate", "query", "c1"), tables.QUERY)["id"].to_pylist()
    table = tables.read(path, tables.ORACLE)
    tables.write(table.filter([i != asked[0] for i in table["id"].to_pylist()]), tables.ORACLE, path)
    with pytest.raises(DataError, match=f"data/oracle.parquet: has no label for id {asked[0]}$"):
        workspace.run("annotate", "c1")
