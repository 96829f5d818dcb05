"""scores.parquet, written in parts."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from codline.data import tables
from codline.data.score_table import regroup, write_scores


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 12))
def test_regroup_keeps_all_rows_in_groups_of_one_size(sizes: list[int], size: int) -> None:
    stops = np.cumsum(sizes).tolist()
    parts = [pa.table({"id": range(stop - length, stop)}) for stop, length in zip(stops, sizes, strict=True)]
    groups = [group["id"] for group in regroup(parts, size)]
    assert [i for group in groups for i in group.to_pylist()] == list(range(stops[-1]))
    assert {len(group) for group in groups[:-1]} <= {size}
    assert len(groups[-1]) <= size
    assert {group.num_chunks for group in groups} == {1}


@settings(max_examples=10)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=6))
def test_write_scores_writes_the_bytes_of_one_table(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder, count = tmp_path_factory.mktemp("scores"), sum(sizes)
    ids, scores = np.arange(count) * 3, np.random.default_rng(0).random(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "ROW_GROUP_ROWS", 2048)
        tables.write_table(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, folder / "whole")
        rows = [slice(stop - size, stop) for stop, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)]
        write_scores(((ids[part], scores[part]) for part in rows), folder / "parts", ranks_pool=True)
    assert (folder / "parts").read_bytes() == (folder / "whole").read_bytes()
    assert pq.ParquetFile(folder / "parts").num_row_groups == -(-count // 2048)


def test_write_scores_leaves_nothing_behind_if_scoring_fails(tmp_path: Path) -> None:
    def parts() -> object:
        yield np.arange(3), np.zeros(3)
        raise MemoryError

    with pytest.raises(MemoryError):
        write_scores(parts(), tmp_path / "scores", ranks_pool=True)  # type: ignore[arg-type]
    assert [*tmp_path.iterdir()] == []
