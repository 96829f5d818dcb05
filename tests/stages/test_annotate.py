"""annotate: labels from the simulated annotator or from people's csv file."""

import json
import re
from pathlib import Path

import pytest

from codline.core.errors import CodlineError, DataError, UserError, WaitingForPeople
from codline.data import tables
from tests.workspace import Workspace


def read_annotations(workspace: Workspace, cycle: str = "c1") -> dict[int, int]:
    table = tables.read_table(workspace.path("annotate", "annotations", cycle), tables.ANNOTATIONS)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def read_true_labels(workspace: Workspace) -> dict[int, int]:
    table = tables.read_table(workspace.path("prepare", "oracle"), tables.ORACLE)
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
    path, ids = workspace.path("prepare", "oracle"), read_query(workspace)
    table = tables.read_table(path, tables.ORACLE)
    tables.write_table(table.filter([i != ids[0] for i in table["id"].to_pylist()]), tables.ORACLE, path)
    with pytest.raises(DataError, match=f"data/oracle.parquet: has no label for id {ids[0]}$"):
        workspace.run("annotate", "c1")


def test_annotate_refuses_answers_that_dvc_does_not_track(workspace: Workspace) -> None:
    workspace.change(**{"annotate.annotator": {"name": "people"}})
    found = "params.yaml: queries.c1.answers: found data/oracle.parquet"
    expected = "expected answers/c1.csv, which the annotator people reads; `codline run` writes it"
    with pytest.raises(UserError, match=re.escape(f"{found}, {expected}")):
        workspace.run("annotate", "c1")


@pytest.fixture
def with_people(workspace: Workspace) -> Workspace:
    """People are the annotators of c1, and have not labeled anything."""
    workspace.ask_people()
    workspace.path("annotate", "annotations", "c1").unlink()
    workspace.path("prepare", "oracle").write_bytes(b"must not be read")
    return workspace


def write_answers(rows: list[str], header: str = "id,label") -> None:
    Path("answers").mkdir(exist_ok=True)
    Path("answers/c1.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def run_failing(workspace: Workspace, kind: type[CodlineError] = DataError) -> str:
    """Run annotate, which must fail and write nothing; return the error sentence."""
    with pytest.raises(kind) as refused:
        workspace.run("annotate", "c1")
    assert not workspace.path("annotate", "annotations", "c1").exists()
    return str(refused.value)


def unlabeled(workspace: Workspace) -> list[int]:
    """Images of the pool that have no label when c1 is annotated, and are not asked for."""
    pool = tables.read_table(workspace.path("prepare", "pool"), tables.POOL)["id"].to_pylist()
    labeled = tables.read_table(workspace.path("prepare", "labeled"), tables.LABELED)["id"].to_pylist()
    return sorted(set(pool) - set(labeled) - set(read_query(workspace)))


def test_annotate_waits_for_the_labels_of_people(with_people: Workspace) -> None:
    ids = read_query(with_people)
    write_answers([f"{i}, {i % 10}" for i in ids[2:]] + [f"{ids[0]},"])
    todo = "label the images in queries/c1 (fill in the column `label`), then run `codline run`"
    assert (
        run_failing(with_people, WaitingForPeople)
        == f"answers/c1.csv: 2 of {len(ids)} images have no label yet; {todo}"
    )
    write_answers([f"{i},{i % 10}" for i in ids])
    with_people.run("annotate", "c1")
    assert read_annotations(with_people) == {i: i % 10 for i in ids}
    assert read_cost(with_people) == {"asked": len(ids), "answered": len(ids), "wrong": 0}


def test_annotate_uses_answers_of_other_images_of_the_pool_and_merge_accepts_them(with_people: Workspace) -> None:
    ids, (first, second, *_) = read_query(with_people), unlabeled(with_people)
    write_answers([f"{i},1,Ann" for i in ids] + [f"{second},2,", f"{first},3,Bob"], "id,label,annotator")
    with_people.run("annotate", "c1")
    with_people.run("merge", "c1")
    assert read_annotations(with_people) == dict.fromkeys(ids, 1) | {first: 3, second: 2}
    assert read_cost(with_people) == {"asked": len(ids), "answered": len(ids) + 2, "wrong": 0}
    merged = tables.read_table(with_people.path("merge", "labeled", "c1"), tables.LABELED).to_pylist()
    rows = {row["id"]: (row["cycle"], row["annotator"]) for row in merged}
    assert (rows[ids[0]], rows[first], rows[second]) == (("c1", "Ann"), ("c1", "Bob"), ("c1", "people"))


def test_annotate_accepts_labels_of_other_images_unless_an_image_of_the_query_is_still_open(
    with_people: Workspace,
) -> None:
    ids, (first, second, *_) = read_query(with_people), unlabeled(with_people)
    answered = [f"{i},1" for i in [*ids[2:], first, second]]  # the query has changed since people answered
    write_answers([*answered, f"{ids[0]},"])
    assert f"1 of {len(ids)} images have no label yet" in run_failing(with_people, WaitingForPeople)
    write_answers(answered)
    with_people.run("annotate", "c1")
    assert set(read_annotations(with_people)) == {*ids[2:], first, second}
    write_answers(answered[:-1])
    with_people.path("annotate", "annotations", "c1").unlink()
    assert f"1 of {len(ids)} images have no label yet" in run_failing(with_people, WaitingForPeople)


def test_annotate_ignores_an_answer_that_repeats_a_label_and_refuses_another_one(with_people: Workspace) -> None:
    labeled = tables.read_table(with_people.path("prepare", "labeled"), tables.LABELED)
    image, label = labeled["id"][0].as_py(), labeled["label"][0].as_py()
    ids = read_query(with_people)
    write_answers([f"{i},1" for i in ids] + [f"{image},{(label + 1) % 10}"])
    found = f"line {len(ids) + 2}: id {image} is labelled {(label + 1) % 10}, but it already has the label {label}"
    assert run_failing(with_people) == f"answers/c1.csv: {found}; expected one label"
    write_answers([f"{i},1" for i in ids] + [f"{image},{label}"])
    with_people.run("annotate", "c1")
    assert set(read_annotations(with_people)) == set(ids)


def test_annotate_tells_how_many_labels_are_of_no_image_of_the_pool(
    with_people: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    ids = read_query(with_people)
    write_answers([f"{i},1" for i in ids] + ["123456789,1"])
    with_people.run("annotate", "c1")
    assert caplog.messages == ["answers/c1.csv: 1 label is not used, of images that are not in the pool"]
    assert set(read_annotations(with_people)) == set(ids)


def test_annotate_lists_all_problems_of_a_sheet(with_people: Workspace) -> None:
    one, two, *_ = read_query(with_people)
    write_answers([f"{one},3", f"{one},4", "one,3", f"{two},three", ",5"])
    places = [f"answers/c1.csv: line {line}: " for line in (3, 4, 5, 6)]
    sentences = (
        f"id {one} is labelled 4, in line 2 3; expected one label",
        "found the id 'one', expected a number",
        "found the label 'three'; expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        "found the label '5', but neither a file nor an id",
    )
    assert run_failing(with_people) == "; ".join(map(str.__add__, places, sentences))
