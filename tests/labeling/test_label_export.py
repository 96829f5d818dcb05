"""codline export: the labels that a campaign has, by file name, and class folders of links to the images."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from codline.core.errors import UserError
from codline.data import tables
from codline.labeling.label_export import MARKER, export_labels
from codline.labeling.label_table import label_table
from tests.workspace import Workspace


def read_labels(workspace: Workspace, *place: str) -> dict[int, int]:
    table = tables.read_table(workspace.path(*place), tables.LABELED)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def name_images(workspace: Workspace, names: dict[str, int]) -> None:
    tables.write_columns([list(names.values()), list(names)], tables.FILES, workspace.path("prepare", "files"))


def test_label_table_has_the_labels_that_the_campaign_has_and_no_hidden_ones(workspace: Workspace) -> None:
    rows = {row["id"]: row for row in label_table(workspace.pipeline).to_pylist()}
    first, last = read_labels(workspace, "prepare", "labeled"), read_labels(workspace, "merge", "labeled", "c2")
    pool = {i: row for i, row in rows.items() if row["split"] == "pool"}
    assert {i: row["label"] for i, row in pool.items() if row["label"]} == {i: str(last[i]) for i in last}
    assert {row["annotator"] for i, row in pool.items() if i in first} == {"dataset"}
    assert {row["annotator"] for i, row in pool.items() if i in last and i not in first} == {"simulated"}
    assert {row["cycle"] for i, row in pool.items() if i in last} == {"init", "c1", "c2"}
    for split in ("validation", "test"):
        aside = [row for row in rows.values() if row["split"] == split]
        assert len(aside) == tables.count_rows(workspace.path("prepare", split), tables.TEST)
        assert {(row["annotator"], row["cycle"]) for row in aside} == {("dataset", None)}
        assert all(row["label"] for row in aside)


def test_label_table_has_predictions_of_unlabelled_and_of_test_images(workspace: Workspace) -> None:
    rows = {row["id"]: row for row in label_table(workspace.pipeline).to_pylist()}
    with workspace.path("evaluate", "predictions", "c3").open() as file:
        expected = {int(row["id"]): row["predicted"] for row in csv.DictReader(file)}
    assert {i: row["predicted"] for i, row in rows.items() if row["split"] == "test"} == expected
    unlabeled = [row for row in rows.values() if row["label"] is None]
    assert len(unlabeled) > 100
    assert all(row["predicted"] in "0123456789" and 0.1 <= row["confidence"] <= 1 for row in unlabeled)


def test_export_has_a_row_per_name_sorted_by_name(workspace: Workspace) -> None:
    one, two, *_ = read_labels(workspace, "prepare", "labeled")
    name_images(workspace, {"b.png": one, "a, copy of b.png": one, "c.png": two})
    count = len(label_table(workspace.pipeline))
    lines = export_labels(workspace.pipeline, Path("out/labels.csv"), None)
    assert lines[0].startswith(f"out/labels.csv: {count:,} rows of {count - 1:,} images, of which ")
    with Path("out/labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], int(row["id"])) for row in rows[:3]] == [
        ("a, copy of b.png", one),
        ("b.png", one),
        ("c.png", two),
    ]
    assert rows[0]["label"] == rows[1]["label"] != ""
    export_labels(workspace.pipeline, Path("labels.parquet"), None)
    assert pq.read_table("labels.parquet").equals(label_table(workspace.pipeline))


def test_export_makes_class_folders_and_replaces_only_its_own(workspace: Workspace) -> None:
    labels = read_labels(workspace, "merge", "labeled", "c2")
    one, two = [i for i in labels if labels[i] == 3][:2]
    name_images(workspace, {"x/same.png": one, "y/same.png": two})
    for _ in range(2):
        export_labels(workspace.pipeline, None, Path("labelled"))
        assert {path.name for path in Path("labelled").iterdir()} == {*map(str, range(10)), MARKER}
        names = {path.name for path in Path("labelled/3").iterdir()}
        assert {"same.png", f"same-{two}.png"} <= names
    Path("mine").mkdir()
    Path("mine/photo.png").touch()
    with pytest.raises(UserError, match="mine: exists and was not made by `codline export`"):
        export_labels(workspace.pipeline, None, Path("mine"))
    assert Path("mine/photo.png").exists()


def test_export_says_how_many_answers_are_newer_than_the_labels(workspace: Workspace) -> None:
    workspace.ask_people()
    query = tables.read_table(workspace.path("annotate", "query", "c1"), tables.QUERY)["id"].to_pylist()
    labels = read_labels(workspace, "merge", "labeled", "c2")
    Path("answers").mkdir()
    rows = [f"{query[0]},{labels[query[0]]}", f"{query[1]},{(labels[query[1]] + 1) % 10}"]
    Path("answers/c1.csv").write_text("\n".join(["id,label", *rows]))
    lines = export_labels(workspace.pipeline, Path("labels.csv"), None)
    assert lines[-1] == "1 answers are newer than these labels: run `codline run`, then export again."


@pytest.mark.parametrize(
    ("path", "sentence"),
    [(None, "expected a file, such as labels.csv"), ("labels.txt", r"expected a name that ends with .csv or .parquet")],
)
def test_export_refuses_what_it_cannot_write(workspace: Workspace, path: str | None, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        export_labels(workspace.pipeline, Path(path) if path else None, None)
    assert not Path("labels.txt").exists()


def test_label_table_of_a_campaign_that_has_only_begun_has_no_predictions(workspace: Workspace) -> None:
    for cycle in workspace.pipeline.cycles:
        workspace.path("evaluate", "predictions", cycle).unlink()
    for cycle in workspace.pipeline.queries:
        workspace.path("score", "outputs", cycle).unlink()
        workspace.path("merge", "labeled", cycle).unlink()
    table = label_table(workspace.pipeline)
    assert table["predicted"].null_count == table["confidence"].null_count == len(table)
    pool = table.filter(np.array(table["split"].to_pylist()) == "pool")
    assert len(pool) - pool["label"].null_count == len(read_labels(workspace, "prepare", "labeled"))
