"""Queries handed out to people: original images, a page, and answer sheets that keep what people wrote."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.core.errors import DataError, UserError
from codline.core.files import file_sha256
from codline.data import tables
from codline.data.image_store import open_image_store
from codline.labeling import originals
from codline.labeling.check_answers import check_answers
from codline.labeling.query_export import export_query, hand_out_query
from tests.workspace import Workspace


@pytest.fixture
def with_people(workspace: Workspace) -> Workspace:
    workspace.ask_people()
    return workspace


def read_query(workspace: Workspace, cycle: str = "c1") -> list[int]:
    query = tables.read_table(workspace.path("annotate", "query", cycle), tables.QUERY).sort_by("rank")
    ids: list[int] = query["id"].to_pylist()
    return ids


def read_history() -> list[list[str]]:
    """Rows without their time."""
    with Path("answers/history.csv").open() as file:
        return [row[1:] for row in list(csv.reader(file))[1:]]


def name_images(workspace: Workspace, names: dict[int, list[str]]) -> None:
    rows = [(i, name) for i, listed in names.items() for name in listed]
    columns = [list(column) for column in zip(*rows, strict=True)]
    tables.write_columns(columns, tables.FILES, workspace.path("prepare", "files"))


def test_export_query_writes_an_image_per_id_and_a_sheet_to_fill_in(with_people: Workspace) -> None:
    ids = read_query(with_people)
    message = export_query(with_people.pipeline, "c1")
    exported = f"{len(ids)} images are in queries/c1, queries/c1/index.html shows them."
    todo = "fill in the column `label` of answers/c1.csv (one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9), then run `codline run`"
    assert message == f"{exported} {len(ids)} of them have no label yet: {todo}."
    assert Path("answers/c1.csv").read_text() == "\n".join(["file,label,id", *(f",,{i}" for i in ids)]) + "\n"
    assert read_history() == [["c1", str(i), "", "", "", ""] for i in ids]
    store, page = open_image_store(with_people.path("score", "images", "c1")), Path("queries/c1/index.html").read_text()
    assert sorted(path.name for path in Path("queries/c1").glob("*.png")) == sorted(f"{i}.png" for i in ids)
    for i in ids[:3]:
        assert np.array_equal(np.asarray(Image.open(f"queries/c1/{i}.png")), store.take(np.array([i]))[0, 0])
        assert f'<img src="{i}.png"' in page


def test_export_query_without_people_writes_no_sheet(workspace: Workspace) -> None:
    assert export_query(workspace.pipeline, "c1").endswith("queries/c1/index.html shows them.")
    assert not Path("answers").exists()
    with pytest.raises(UserError, match=r"cycle: found 'c9'; did you mean c2 or c1\?$"):
        export_query(workspace.pipeline, "c9")


def test_export_query_keeps_what_people_have_written(with_people: Workspace) -> None:
    ids = read_query(with_people)
    other = next(i for i in read_query(with_people, "c2") if i not in ids)
    Path("answers").mkdir()
    before = f"\ufeffLabel,who,ID\n7,Ann,{ids[0]}\n,,{ids[1]}\n8,,{other}"
    Path("answers/c1.csv").write_text(before, encoding="utf-8")
    for _ in range(2):
        export_query(with_people.pipeline, "c1")
        expected = "\n".join([before, *(f",,{i}" for i in ids[2:-1])]) + "\n"  # `other` in place of the last one
        assert Path("answers/c1.csv").read_text(encoding="utf-8") == expected


def test_changed_query_with_all_its_labels_asks_for_no_more(with_people: Workspace) -> None:
    ids = read_query(with_people)
    others = [i for i in read_query(with_people, "c2") if i not in ids]
    Path("answers").mkdir()
    rows = [f",1,{i}" for i in [*others, *ids[len(others) :]]]
    text = "\n".join(["file,label,id", *rows]) + "\n"
    Path("answers/c1.csv").write_text(text)
    assert hand_out_query(with_people.pipeline, "c1") == []
    exported = f"{len(ids)} images are in queries/c1, queries/c1/index.html shows them."
    assert export_query(with_people.pipeline, "c1") == f"{exported} All of them have a label."
    Path("answers/c1.csv").write_text("\n".join(["file,label,id", *rows[2:]]) + "\n")  # two photographs were removed
    hand_out_query(with_people.pipeline, "c1")
    assert Path("answers/c1.csv").read_text().splitlines()[-2:] == [f",,{i}" for i in ids[:2]]


def test_sheet_of_a_changed_query_takes_labels_from_other_sheets_and_drops_empty_rows(with_people: Workspace) -> None:
    ids = read_query(with_people)
    other = next(i for i in read_query(with_people, "c2") if i not in ids)
    Path("answers").mkdir()
    Path("answers/c1.csv").write_text(f"file,label,id\n,,{other}\n,3,{ids[0]}\n")
    Path("answers/c2.csv").write_text(f"id,label,annotator\n{ids[1]},4,Ann\n")
    hand_out_query(with_people.pipeline, "c1")
    rows = [f",3,{ids[0]}", f",4,{ids[1]}", *(f",,{i}" for i in ids[2:])]
    assert Path("answers/c1.csv").read_text() == "\n".join(["file,label,id", *rows]) + "\n"


def test_hand_out_query_leaves_the_images_alone_unless_the_query_has_changed(with_people: Workspace) -> None:
    ids = read_query(with_people)
    (remark,) = hand_out_query(with_people.pipeline, "c1")
    assert remark.endswith(" labels of the dataset are not used (prepare.start: 0.1); -S prepare.start=all uses them")
    Path("queries/c1/notes.txt").touch()
    hand_out_query(with_people.pipeline, "c1")
    assert Path("queries/c1/notes.txt").exists()
    query = tables.read_table(with_people.path("annotate", "query", "c1"), tables.QUERY)
    tables.write_table(query.slice(1), tables.QUERY, with_people.path("annotate", "query", "c1"))
    hand_out_query(with_people.pipeline, "c1")
    assert len(list(Path("queries/c1").iterdir())) == len(ids)  # one image fewer, and the page


def as_folder_dataset(workspace: Workspace, names: dict[int, str]) -> dict[int, int]:
    """Give images of the campaign files in photos/, with the ids of their content; returns {old id: new id}."""
    store, new_ids = open_image_store(workspace.path("prepare", "images")), dict[int, int]()
    for i, name in names.items():
        path = Path("photos") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(originals.encode_png(store.take(np.array([i]))[0]))
        new_ids[i] = originals.content_id(file_sha256(path))
    workspace.change(**{"prepare.dataset": {"name": "folder", "path": "photos"}})
    name_images(workspace, {new_ids[i]: [name] for i, name in names.items()})
    return new_ids


def test_originals_are_linked_unless_they_have_changed(workspace: Workspace) -> None:
    one, two, three = read_query(workspace)[:3]
    new = as_folder_dataset(workspace, {one: "IMG 1.png", two: "sub/IMG_2.png", three: "gone.png"})
    Path("photos/sub/IMG_2.png").write_bytes(Path("photos/IMG 1.png").read_bytes())
    Path("photos/gone.png").unlink()
    found = originals.files_in_folder(Path("photos"), {new[one]: ["IMG 1.png"], new[two]: ["sub/IMG_2.png"]})
    assert found == {new[one]: originals.Original("IMG 1.png", Path("photos/IMG 1.png"))}
    found[new[one]].write(Path("linked"), "sub/1.png")
    found[new[one]].write(Path("copied"), "1.png", copy=True)
    assert Path("linked/sub/1.png").readlink() == Path("photos/IMG 1.png").absolute()
    assert not Path("copied/1.png").is_symlink()
    assert Path("copied/1.png").read_bytes() == Path("photos/IMG 1.png").read_bytes()


def test_original_of_a_parquet_file_is_its_cell(tmp_path: Path) -> None:
    rng, cells = np.random.default_rng(0), []
    for kind in ("JPEG", "PNG", "WEBP"):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(buffer, kind)
        cells.append(buffer.getvalue())
    pq.write_table(pa.table({"image": [*cells, b"raw pixels"]}), tmp_path / "images.parquet")
    ids = [originals.content_id(originals.hashlib.sha256(cell).hexdigest()) for cell in [*cells, b"raw pixels"]]
    names = dict(zip(ids, (["a/1.jpeg"], ["../2"], ["train.parquet#3"], ["4"]), strict=True))
    found = dict(originals.parquet_cells([tmp_path / "images.parquet"], names))
    assert [original.name for original in found.values()] == ["a/1.jpeg", "2.png", "train.parquet#3.webp"]
    assert [original.content for original in found.values()] == cells


def test_check_answers_lists_problems_of_all_sheets(with_people: Workspace) -> None:
    one, two, three, *_ = read_query(with_people)
    labeled = tables.read_table(with_people.path("prepare", "labeled"), tables.LABELED)
    image, label = labeled["id"][0].as_py(), labeled["label"][0].as_py()
    Path("answers").mkdir()
    Path("answers/c1.csv").write_text(f"id,label\n{one},1\n99999,1\n{two},x\n{image},{(label + 1) % 10}\n")
    Path("answers/c2.csv").write_text(f"id,label\n{one},2\n{three},3\n")
    with pytest.raises(DataError) as refused:
        check_answers(with_people.pipeline)
    assert str(refused.value).replace(f"{with_people.root}/", "").split("; ") == [
        "answers/c1.csv: line 4: found the label 'x'",
        "expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        "answers/c1.csv: line 3: found id 99999, expected an image of the dataset",
        f"answers/c2.csv: line 2: id {one} is labelled 2, in answers/c1.csv: line 2 1",
        "expected one label",
        f"answers/c1.csv: line 5: id {image} is labelled {(label + 1) % 10}, but the dataset has the label {label}",
        "expected one label",
    ]
    assert not Path("answers/history.csv").exists()


def test_history_keeps_questions_corrections_and_withdrawn_answers(with_people: Workspace) -> None:
    one, two, *others = read_query(with_people)
    export_query(with_people.pipeline, "c1")
    for labels in (("1", "2"), ("1", "3"), ("1", "3"), ("", "3")):
        Path("answers/c1.csv").write_text(f"id,label,annotator\n{one},{labels[0]},Ann\n{two},{labels[1]},\n")
        check_answers(with_people.pipeline)
    assert read_history()[len(others) + 2 :] == [
        ["c1", str(one), "", "1", "Ann", ""],
        ["c1", str(two), "", "2", "people", ""],
        ["c1", str(two), "", "3", "people", "2"],
        ["c1", str(one), "", "", "", "1"],
    ]


def test_answer_of_a_removed_image_is_told_and_one_of_a_renamed_image_with_a_rounded_id_refused(
    with_people: Workspace,
) -> None:
    one, two, *_ = read_query(with_people)
    name_images(with_people, {one: ["a.jpg"], two: ["b.jpg"], 123456789123: ["c.jpg"]})
    Path("answers").mkdir()
    Path("answers/c1.csv").write_text(f"file,label,id\na.jpg,1,{one}\nb.jpg,2,{two}\nc.jpg,3,123456789123\n")
    assert check_answers(with_people.pipeline) == []
    name_images(with_people, {one: ["a.jpg"], two: ["renamed.jpg"]})
    removed = "answers: 1 label is not used (removed images): c.jpg"
    assert check_answers(with_people.pipeline) == [f"{with_people.root}/{removed}"]
    Path("answers/c1.csv").write_text("file,label,id\nb.jpg,2,1.23457E+18\n")
    expected = f"/answers/c1.csv: line 2: b.jpg is called renamed.jpg now; expected that name, or the id {two}"
    with pytest.raises(DataError, match=expected):
        check_answers(with_people.pipeline)
