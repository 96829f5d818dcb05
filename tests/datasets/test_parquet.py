"""Parquet: labels as numbers or names, some of them missing; ids from the cells, names from a column or the row."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.core.errors import DataError
from codline.data.raw_dataset import RawDataset
from codline.datasets.parquet import Parquet


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)).save(file, "png")
    return file.getvalue()


NO_LABELS = pa.array([None, None], pa.string())
CELLS = [png(number) for number in range(24)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, cells: list[bytes], labels: Any, **columns: Any) -> None:
    pq.write_table(pa.table({"image": cells, "label": labels} | columns), name)


def load(**parameters: Any) -> RawDataset:
    spec = Parquet(**{"train": ["train.parquet"], "test": ["test.parquet"]} | parameters)
    return spec.load(np.random.default_rng(0))


def labels_by_name(raw: RawDataset) -> dict[str, int]:
    assert raw.files is not None
    label_of = dict(zip(raw.ids.tolist(), raw.labels.tolist(), strict=True))
    return {row["file"]: label_of[row["id"]] for row in raw.files.to_pylist()}


def test_parquet_takes_numbers_with_a_null_as_numbers_and_no_label() -> None:
    """As floats, or as texts, 10 and 11 would come before 2, and None would be a class."""
    numbers = [*range(12), None, 3]
    write("train.parquet", CELLS[:14], pa.array(numbers, pa.int64()))
    write("test.parquet", CELLS[14:], pa.array([2, 10] * 5, pa.int8()))
    raw = load()
    assert raw.classes == tuple(str(number) for number in range(12))
    found = labels_by_name(raw)
    assert [found[f"train.parquet#{row}"] for row in range(14)] == [*range(12), -1, 3]
    assert found["test.parquet#1"] == 10


def test_parquet_takes_texts_with_a_null_as_class_names() -> None:
    write("train.parquet", CELLS[:4], pa.array(["b", None, "a", "b"]).dictionary_encode())
    write("test.parquet", CELLS[4:6], ["a", "b"])
    raw = load()
    assert raw.classes == ("a", "b")
    assert [labels_by_name(raw)[f"train.parquet#{row}"] for row in range(4)] == [1, -1, 0, 1]


@pytest.mark.parametrize(
    ("train", "test", "sentence"),
    [
        ([0.0, 1.0], [0, 1], r"^train.parquet: found labels of type double, expected whole numbers or texts$"),
        ([0, 1], ["a", "b"], "^found class numbers as labels in train.parquet and class names in test.parquet, "),
        ([0, -1], [0, 1], r"^train.parquet: row 1: found the label -1, expected one of 2 classes$"),
        ([0, 1], pa.array([0, None]), "^test.parquet: 1 test images have no label, expected one for each$"),
        (NO_LABELS, NO_LABELS, "^train.parquet: no image has a label$"),
    ],
)
def test_parquet_names_labels_that_cannot_be_used(train: Any, test: Any, sentence: str) -> None:
    write("train.parquet", CELLS[:2], train)
    write("test.parquet", CELLS[2:4], test)
    with pytest.raises(DataError, match=sentence):
        load()


def test_parquet_takes_names_from_the_column_file_and_refuses_one_of_two_images() -> None:
    write("train.parquet", CELLS[:3], [0, 1, 0], file=["a.png", None, "c.png"])
    write("test.parquet", [CELLS[3], CELLS[3], CELLS[4]], [0, 0, 1], file=["d.png", "d.png", "e.png"])
    assert labels_by_name(load()) == {"a.png": 0, "train.parquet#1": 1, "c.png": 0, "d.png": 0, "e.png": 1}
    write("test.parquet", CELLS[3:5], [0, 1], file=["a.png", "d.png"])
    with pytest.raises(DataError, match=r"1 names are those of several images: a.png$"):
        load()


def test_parquet_keeps_ids_and_labels_when_rows_move_and_are_added() -> None:
    write("test.parquet", CELLS[20:], [0, 1, 0, 1])
    write("train.parquet", CELLS[:8], [0, 1] * 4)
    before = load()
    write("train.parquet", CELLS[8:12] + CELLS[:8][::-1], [0, 1] * 2 + ([0, 1] * 4)[::-1])
    after = load()
    known = np.isin(after.ids, before.ids)
    assert after.ids[known].tolist() == before.ids.tolist()
    assert after.labels[known].tolist() == before.labels.tolist()
    assert len(after.ids) == 16


def test_parquet_counts_identical_cells_once_and_keeps_test_images_out_of_the_pool() -> None:
    write("test.parquet", CELLS[20:22], [0, 1])
    write("train.parquet", [*CELLS[:3], CELLS[0], CELLS[20]], [0, 1, 1, 0, 0])
    raw = load()
    assert (len(raw.ids), int(raw.is_test.sum())) == (5, 2)
    write("train.parquet", [*CELLS[:3], CELLS[0]], [0, 1, 1, 1])
    found = r"train.parquet#0 \(0\) and train.parquet#3 \(1\)"
    with pytest.raises(DataError, match=rf"identical files with different labels \(1\): {found}; "):
        load()
    assert len(load(conflicts="skip").ids) == 4


def test_parquet_inputs_are_numbered() -> None:
    spec = Parquet(train=["a.parquet", "b/a.parquet"], test=["c.parquet"])
    assert spec.input_paths() == {"train-1": "a.parquet", "train-2": "b/a.parquet", "test-1": "c.parquet"}
