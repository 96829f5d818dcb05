"""Labels and unlabeled ids, from tables of any order."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from codline.core.errors import DataError
from codline.data import labels, tables

ids = st.lists(st.integers(0, 200), unique=True, max_size=40)


def write_oracle(path: Path, ids: list[int]) -> Path:
    table = pa.table([np.array(ids, np.int64), np.array(ids, np.int32) * 2], schema=tables.ORACLE)
    tables.write_table(table, tables.ORACLE, path)
    return path


@settings(max_examples=25)
@given(oracle=ids.filter(bool), data=st.data())
def test_lookup_labels_works_for_any_order_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, oracle: list[int], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.sampled_from(oracle)))
    path = write_oracle(tmp_path_factory.mktemp("oracle") / "oracle.parquet", oracle)
    found = labels.lookup_labels(np.array(asked, np.int64), path, tables.ORACLE, classes=401)
    assert found.tolist() == [2 * i for i in asked]


@pytest.mark.parametrize("known", [[], [1, 2], [8, 9]])
def test_lookup_labels_names_an_id_without_a_label(tmp_path: Path, known: list[int]) -> None:
    path = write_oracle(tmp_path / "oracle.parquet", known)
    with pytest.raises(DataError, match=r"oracle\.parquet: has no label for id 5$"):
        labels.lookup_labels(np.array([5]), path, tables.ORACLE, classes=401)


@pytest.mark.parametrize(("label", "classes"), [(-1, 3), (3, 3), (2**31 - 1, 10)])
def test_read_labels_refuses_a_label_outside_the_classes(tmp_path: Path, label: int, classes: int) -> None:
    path = tmp_path / "oracle.parquet"
    tables.write_columns([[4, 9], np.array([0, label], np.int32)], tables.ORACLE, path)
    with pytest.raises(DataError, match=rf"parquet: id 9 has label {label}, expected 0 to {classes - 1}$"):
        labels.read_labels(path, tables.ORACLE, classes)
    with pytest.raises(DataError, match="id 9 has label"):
        labels.lookup_labels(np.array([4]), path, tables.ORACLE, classes)


def test_read_labels_refuses_a_table_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"oracle\.parquet: has no rows, expected at least one"):
        labels.read_labels(write_oracle(tmp_path / "oracle.parquet", []), tables.ORACLE, 3)


def write_pool(folder: Path, pool: list[int], labeled: list[int]) -> tuple[Path, Path]:
    tables.write_table(pa.table([pool, [""] * len(pool)], schema=tables.POOL), tables.POOL, folder / "pool")
    tables.write_table(
        pa.table(
            [labeled, [0] * len(labeled), ["init"] * len(labeled), ["dataset"] * len(labeled)], schema=tables.LABELED
        ),
        tables.LABELED,
        folder / "labeled",
    )
    return folder / "pool", folder / "labeled"


def test_unlabeled_ids_are_the_rest_of_the_pool_ascending(tmp_path: Path) -> None:
    assert labels.unlabeled_ids(*write_pool(tmp_path, [9, 3, 5, 7], [5, 9])).tolist() == [3, 7]


@settings(max_examples=25)
@given(pool=ids.filter(bool), data=st.data())
def test_unlabeled_ids_are_the_pool_without_the_labeled_ids(
    tmp_path_factory: pytest.TempPathFactory, pool: list[int], data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from(pool), unique=True))
    files = write_pool(tmp_path_factory.mktemp("pool"), pool, known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "READ_ROWS", data.draw(st.integers(1, 50)))
        assert labels.unlabeled_ids(*files).tolist() == sorted({*pool} - {*known})


@pytest.mark.parametrize("pool", [[3], [8, 9]])
def test_unlabeled_ids_refuse_a_label_outside_a_small_pool(tmp_path: Path, pool: list[int]) -> None:
    with pytest.raises(DataError, match=r"labeled: id 4 is not in .*pool$"):
        labels.unlabeled_ids(*write_pool(tmp_path, pool, [4]))


def test_unlabeled_ids_refuse_a_label_outside_the_pool(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labeled: id 4 is not in .*pool$"):
        labels.unlabeled_ids(*write_pool(tmp_path, [3, 5], [5, 4]))
