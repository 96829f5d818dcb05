"""annotate: labels from the simulated annotator or from people's csv file; and the export of a query for people."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codline.core.errors import DataError, UserError
from codline.data import tables
from codline.data.image_store import open_image_store
from codline.report.query_export import export_query
from tests.workspace import Workspace


def read_annotations(workspace: Workspace, cycle: str = "c1") -> dict[int, int]:
    table = tables.read_table(workspace.path("annotate", "annotations", cycle), tables.ANNOTATIONS)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def read_true_labels(workspace: Workspace) -> dict[int, int]:
    table = tables.read_table(workspace.path("annotate", "oracle", "c1"), tables.ORACLE)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def read_cost(workspace: Workspace) -> dict[str, int]:
    cost: dict[str, int] = json.loads(workspace.path("annotate", "cost", "c1").read_text())
    return cost


def read_query(workspace: Workspace) -> list[int]:
    ids: list[int] = tables.read_table(workspace.path("annotate", "query", "c1"), tables.QUERY)["id"].to_pylist()
    return ids


def test_annotate_writes_the_true_label_of_every_queried_image(workspace: Workspace) -> None:
    ids, true_labels = read_query(workspace), read_true_labels(workspace)
    assert read_annotations(workspace) == {i: true_labels[i] for i in ids}
    assert read_cost(workspace) == {"asked": len(ids), "answered": len(ids), "wrong": 0}


def test_annotate_counts_wrong_labels_which_differ_between_cycles(workspace: Workspace) -> None:
    workspace.change(**{"annotate.annotator.noise": 0.5})
    for cycle in ("c1", "c2"):
        workspace.run("annotate", cycle)
    true_labels = read_true_labels(workspace)
    wrong = [label != true_labels[i] for i, label in read_annotations(workspace).items()]
    assert read_cost(workspace)["wrong"] == sum(wrong) > 0
    assert [label != true_labels[i] for i, label in read_annotations(workspace, "c2").items()] != wrong


def test_annotate_noise_changes_no_other_random_stream(workspace: Workspace) -> None:
    outputs = [*workspace.outputs("prepare"), *workspace.outputs("score", "c1")]
    before = [path.read_bytes() for path in outputs]
    workspace.change(**{"annotate.annotator.noise": 0.5})
    workspace.run("prepare")
    workspace.run("score", "c1")
    assert [path.read_bytes() for path in outputs] == before


def test_annotate_refuses_an_oracle_without_the_label(workspace: Workspace) -> None:
    path, ids = workspace.path("annotate", "oracle", "c1"), read_query(workspace)
    table = tables.read_table(path, tables.ORACLE)
    tables.write_table(table.filter([i != ids[0] for i in table["id"].to_pylist()]), tables.ORACLE, path)
    with pytest.raises(DataError, match=f"data/oracle.parquet: has no label for id {ids[0]}$"):
        workspace.run("annotate", "c1")


@pytest.fixture
def with_people(workspace: Workspace) -> Workspace:
    """People are the annotators of c1, and have not labeled anything."""
    workspace.change(**{"annotate.annotator": {"name": "people", "answers": "answers.csv"}})
    workspace.path("annotate", "annotations", "c1").unlink()
    return workspace


def run_failing(workspace: Workspace) -> str:
    """Run annotate, which must fail and write nothing; return the error sentence."""
    with pytest.raises(DataError) as refused:
        workspace.run("annotate", "c1")
    assert not workspace.path("annotate", "annotations", "c1").exists()
    return str(refused.value)


def test_annotate_waits_for_the_labels_of_people(with_people: Workspace) -> None:
    ids, labels = read_query(with_people), read_true_labels(with_people)
    count = len(ids)
    with_people.path("annotate", "oracle", "c1").write_bytes(b"must not be read")
    how = "`codline query c1` shows them and lists them in answers.csv: write the labels there, and run again"
    assert run_failing(with_people) == f"answers.csv: {count} of the {count} images asked for have no label yet; {how}"
    exported = f"{count} images are in queries/c1, named by their ids. {count} of them have no label yet: fill in the"
    assert export_query(with_people.pipeline, "c1").startswith(exported)
    assert Path("answers.csv").read_text() == "\n".join(["id,label", *(f"{i}," for i in ids)]) + "\n"
    Path("answers.csv").write_text("\n".join(["id,label", *(f"{i}, {labels[i]}" for i in ids[:-1])]))
    assert run_failing(with_people).startswith(f"answers.csv: 1 of the {count} images")
    todo = "fill in the `label` column of answers.csv (one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)"
    assert f" 1 of them have no label yet: {todo}" in export_query(with_people.pipeline, "c1")
    with Path("answers.csv").open("a") as file:
        file.write(f"{ids[-1]},{labels[ids[-1]]}\n")
    with_people.run("annotate", "c1")
    assert read_annotations(with_people) == {i: labels[i] for i in ids}
    assert read_cost(with_people) == {"asked": count, "answered": count, "wrong": 0}


def test_export_query_writes_an_image_per_id(with_people: Workspace) -> None:
    export_query(with_people.pipeline, "c1")
    store, ids = open_image_store(with_people.path("score", "images", "c1")), read_query(with_people)
    assert sorted(int(path.stem) for path in Path("queries/c1").iterdir()) == sorted(ids)
    for i in ids[:3]:
        assert np.array_equal(np.asarray(Image.open(f"queries/c1/{i}.png")), store.take(np.array([i]))[0, 0])


def test_export_query_keeps_what_people_have_written(with_people: Workspace) -> None:
    ids = read_query(with_people)
    before = f"\ufeffLabel,who,ID\n7,Ann,{ids[0]}\n,,{ids[1]}"
    Path("answers.csv").write_text(before, encoding="utf-8")
    for _ in range(2):
        export_query(with_people.pipeline, "c1")
        expected = "\n".join([before, *(f",,{i}" for i in ids[2:])]) + "\n"
        assert Path("answers.csv").read_text(encoding="utf-8") == expected


def test_export_query_without_people_writes_no_answers_file(workspace: Workspace) -> None:
    exported = f"{len(read_query(workspace))} images are in queries/c1, named by their ids."
    assert export_query(workspace.pipeline, "c1") == exported
    assert not Path("answers.csv").exists()
    with pytest.raises(UserError, match=r"cycle: found 'c9'; did you mean c2 or c1\?$"):
        export_query(workspace.pipeline, "c9")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,3\n1,4", "line 3: 1 is labelled 4, further up 3; expected one label"),
        ("one,3", "line 2: found the id 'one', expected a number"),
        ("1,three", "line 2: found the label 'three'; expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
    ],
)
def test_annotate_refuses_invalid_answers_of_people(with_people: Workspace, rows: str, sentence: str) -> None:
    Path("answers.csv").write_text(f"id,label\n{rows}\n")
    assert run_failing(with_people) == f"answers.csv: {sentence}"
