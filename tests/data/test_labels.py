"""Who is labelled and who is not, looked up by id in tables of any order."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from codline.core.errors import DataError
from codline.data import labels, tables

ids = st.lists(st.integers(0, 200), unique=True, max_size=40)


def write_oracle(path: Path, of: list[int]) -> Path:
    tables.write(
        pa.table([np.array(of, np.int64), np.array(of, np.int32) * 2], schema=tables.ORACLE), tables.ORACLE, path
    )
    return path


@settings(max_examples=25)
@given(oracle=ids.filter(bool), data=st.data())
def test_labels_are_found_whatever_the_order_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, oracle: list[int], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.sampled_from(oracle)))
    path = write_oracle(tmp_path_factory.mktemp("oracle") / "oracle.parquet", oracle)
    assert labels.looked_up(np.array(asked, np.int64), path, tables.ORACLE).tolist() == [2 * i for i in asked]


@pytest.mark.parametrize("known", [[], [1, 2], [8, 9]])
def test_an_id_without_a_label_is_named(tmp_path: Path, known: list[int]) -> None:
    path = write_oracle(tmp_path / "oracle.parquet", known)
    with pytest.raises(DataError, match=r"oracle\.parquet: has no label for id 5$"):
        labels.looked_up(np.array([5]), path, tables.ORACLE)


def write_pool(folder: Path, pool: list[int], labeled: list[int]) -> tuple[Path, Path]:
    tables.write(pa.table([pool, [""] * len(pool)], schema=tables.POOL), tables.POOL, folder / "pool")
    tables.write(
        pa.table([labeled, [0] * len(labeled), ["init"] * len(labeled)], schema=tables.LABELED),
        tables.LABELED,
        folder / "labeled",
    )
    return folder / "pool", folder / "labeled"


def test_the_unlabelled_are_the_rest_of_the_pool_in_order(tmp_path: Path) -> None:
    assert labels.unlabeled(*write_pool(tmp_path, [9, 3, 5, 7], [5, 9])).tolist() == [3, 7]


@settings(max_examples=25)
@given(pool=ids, data=st.data())
def test_nobody_is_both_labelled_and_not(
    tmp_path_factory: pytest.TempPathFactory, pool: list[int], data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from(pool), unique=True)) if pool else []
    assert labels.unlabeled(*write_pool(tmp_path_factory.mktemp("pool"), pool, known)).tolist() == sorted(
        {*pool} - {*known}
    )


@pytest.mark.parametrize("pool", [[], [3], [8, 9]])
def test_a_label_outside_a_small_pool_is_refused(tmp_path: Path, pool: list[int]) -> None:
    with pytest.raises(DataError, match=r"labeled: id 4 is not in .*pool$"):
        labels.unlabeled(*write_pool(tmp_path, pool, [4]))


def test_a_label_for_an_image_outside_the_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labeled: id 4 is not in .*pool$"):
        labels.unlabeled(*write_pool(tmp_path, [3, 5], [5, 4]))
