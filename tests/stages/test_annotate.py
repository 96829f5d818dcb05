"""annotate: the simulated annotator answers from the oracle, errs on its own random stream, and counts what it was asked; people write a csv."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core.errors import DataError, UserError
from codline.data import image_store, tables
from codline.report import query_export
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


@pytest.fixture
def waiting(workspace: Workspace) -> Workspace:
    """People are asked, and have answered nothing."""
    workspace.change(**{"annotate.annotator": {"name": "people", "answers": "answers.csv"}})
    workspace.path("annotate", "annotations", "c1").unlink()
    return workspace


def query(workspace: Workspace) -> list[int]:
    found: list[int] = tables.read(workspace.path("annotate", "query", "c1"), tables.QUERY)["id"].to_pylist()
    return found


def refusal(workspace: Workspace) -> str:
    with pytest.raises(DataError) as refused:
        workspace.run("annotate", "c1")
    assert not workspace.path("annotate", "annotations", "c1").exists()
    return str(refused.value)


def test_people_are_waited_for_and_their_answers_taken(waiting: Workspace) -> None:
    asked, known = query(waiting), truth(waiting)
    waiting.path("annotate", "oracle", "c1").write_bytes(b"nobody knows")
    how = "`codline query c1` shows them and lists them in answers.csv: write the labels there, and run again"
    assert (
        refusal(waiting) == f"answers.csv: {len(asked)} of the {len(asked)} images asked for have no label yet; {how}"
    )
    said = query_export.lay_out(waiting.pipeline, "c1")
    assert said.startswith(
        f"{len(asked)} images are in queries/c1, named by their ids. {len(asked)} of them have no label yet: write it behind the id in answers"
    )
    assert Path("answers.csv").read_text() == "\n".join(["id,label", *(f"{i}," for i in asked)]) + "\n"
    Path("answers.csv").write_text("\n".join(["id,label", *(f"{i}, {known[i]}" for i in asked[:-1])]))
    assert refusal(waiting).startswith(f"answers.csv: 1 of the {len(asked)} images")
    assert (
        " 1 of them have no label yet: write it behind the id in answers.csv (one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)"
        in query_export.lay_out(waiting.pipeline, "c1")
    )
    with Path("answers.csv").open("a") as file:
        file.write(f"{asked[-1]},{known[asked[-1]]}\n")
    waiting.run("annotate", "c1")
    assert answers(waiting) == {i: known[i] for i in asked}
    assert cost(waiting) == {"asked": len(asked), "answered": len(asked), "wrong": 0}


def test_a_query_is_laid_out_as_pictures_named_by_id(waiting: Workspace) -> None:
    query_export.lay_out(waiting.pipeline, "c1")
    store = image_store.opened(waiting.path("score", "images", "c1"))
    assert sorted(int(path.stem) for path in Path("queries/c1").iterdir()) == sorted(query(waiting))
    for i in query(waiting)[:3]:
        assert np.array_equal(np.asarray(Image.open(f"queries/c1/{i}.png")), store.take(np.array([i]))[0, 0])


def test_laying_out_keeps_what_people_have_written(waiting: Workspace) -> None:
    asked = query(waiting)
    before = f"\ufeffLabel,who,ID\n7,Ann,{asked[0]}\n,,{asked[1]}"
    Path("answers.csv").write_text(before, encoding="utf-8")
    for _ in range(2):
        query_export.lay_out(waiting.pipeline, "c1")
        assert (
            Path("answers.csv").read_text(encoding="utf-8")
            == "\n".join([before, *(f",,{i}" for i in asked[2:])]) + "\n"
        )


def test_without_people_a_query_can_still_be_looked_at(workspace: Workspace) -> None:
    assert (
        query_export.lay_out(workspace.pipeline, "c1")
        == f"{len(query(workspace))} images are in queries/c1, named by their ids."
    )
    assert not Path("answers.csv").exists()
    with pytest.raises(UserError, match=r"cycle: found 'c9'; did you mean c2 or c1\?$"):
        query_export.lay_out(workspace.pipeline, "c9")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,3\n1,4", "line 3: 1 is labelled 4, further up 3; expected one label"),
        ("one,3", "line 2: found the id 'one', expected a number"),
        ("1,three", "line 2: found the label 'three'; expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
    ],
)
def test_answers_that_make_no_sense_are_refused(waiting: Workspace, rows: str, sentence: str) -> None:
    Path("answers.csv").write_text(f"id,label\n{rows}\n")
    assert refusal(waiting) == f"answers.csv: {sentence}"
