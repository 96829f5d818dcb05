"""Contract of pickers: `budget` distinct ids, the same for the same seed however the pool is chunked."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core.errors import DataError
from codline.data import tables
from codline.pickers.base import CandidateChunk, Picker
from tests.families import variant_id, variants
from tests.workspace import Workspace

each_picker = pytest.mark.parametrize("picker", variants("pickers"), ids=variant_id)


def make_pool(seed: int, images: int, kind: str) -> CandidateChunk:
    rng = np.random.default_rng(seed)
    scores = {
        "distinct": rng.random(images),
        "constant": np.full(images, 0.5),
        "zero": np.zeros(images),
        "tied": rng.integers(0, 3, images) / 2,
        "signed": rng.normal(size=images),
    }[kind]
    ids = np.sort(rng.permutation(images * 3)[:images])
    return CandidateChunk(ids, scores, rng.integers(0, 4, images), scores.min())


pools = st.builds(
    make_pool,
    st.integers(0, 999),
    st.integers(1, 40),
    st.sampled_from(["distinct", "constant", "zero", "tied", "signed"]),
)


def pick_ids(picker: Picker, chunks: list[CandidateChunk], budget: int, seed: int = 0) -> list[int]:
    picked = picker.pick(chunks, budget, np.random.default_rng(seed))
    score_of = {int(i): score for chunk in chunks for i, score in zip(chunk.ids, chunk.scores, strict=True)}
    assert picked.scores.tolist() == [score_of[i] for i in picked.ids.tolist()]
    return [int(i) for i in picked.ids]


@pytest.mark.parametrize("kind", members("pickers"))
def test_picker_is_named_like_its_module(kind: type[Picker]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_picker
@given(pool=pools, data=st.data())
def test_pick_returns_as_many_distinct_ids_of_the_pool_as_the_budget(
    picker: Picker, pool: CandidateChunk, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, len(pool.ids)))
    ids = pick_ids(picker, [pool], budget)
    assert len(ids) == len(set(ids)) == budget
    assert set(ids) <= set(pool.ids.tolist())


@each_picker
@given(pool=pools)
def test_pick_can_return_one_image_or_the_whole_pool(picker: Picker, pool: CandidateChunk) -> None:
    everything = pick_ids(picker, [pool], len(pool.ids))
    assert sorted(everything) == sorted(pool.ids.tolist())
    assert pick_ids(picker, [pool], 1) == everything[:1]


@each_picker
@given(pool=pools, data=st.data())
def test_pick_depends_neither_on_the_run_nor_on_the_chunks(
    picker: Picker, pool: CandidateChunk, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, len(pool.ids)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pool.ids)), max_size=5)))
    slices = [slice(start, stop) for start, stop in pairwise([0, *cuts, len(pool.ids)]) if start < stop]
    chunks = [
        CandidateChunk(pool.ids[rows], pool.scores[rows], pool.predicted_classes[rows], pool.lowest_score)
        for rows in slices
    ]
    first, second = (pick_ids(picker, [pool], budget) for _ in range(2))
    assert first == second == pick_ids(picker, chunks, budget)


@each_picker
@given(pool=pools)
def test_pick_does_not_modify_the_candidates(picker: Picker, pool: CandidateChunk) -> None:
    arrays = (pool.ids, pool.scores, pool.predicted_classes)
    before = [array.copy() for array in arrays]
    pick_ids(picker, [pool], 1)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


@each_picker
def test_pick_prefers_higher_scores(picker: Picker) -> None:
    pool = CandidateChunk(np.arange(40), np.repeat([0.2, 2.0], 20), np.tile([0, 1], 20))
    ids = [image for seed in range(50) for image in pick_ids(picker, [pool], 10, seed)]
    assert np.mean(np.array(ids) >= 20) > 0.7


@each_picker
def test_select_refuses_a_score_that_is_not_a_number(picker: Picker, workspace: Workspace) -> None:
    path = workspace.path("select", "scores", "c2")
    table = tables.read_table(path, tables.SCORES)
    ids, scores = table["id"].to_numpy(), table["score"].to_numpy().copy()
    scores[5] = np.nan
    tables.write_table(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, path)
    workspace.change(**{"select.pick": picker.model_dump()})
    with pytest.raises(DataError, match=rf"scores\.parquet: id {ids[5]} has no score \(NaN\)$"):
        workspace.run("select", "c2")
