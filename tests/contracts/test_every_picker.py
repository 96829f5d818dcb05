"""What every picker promises: as many distinct ids as asked for, the same for the same seed, whatever the order of the rows."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core.errors import DataError
from codline.data import tables
from codline.pickers.base import Candidates, Picker
from tests.families import spelled, variants
from tests.workspace import Workspace

each_picker = pytest.mark.parametrize("picker", variants("pickers"), ids=spelled)


def candidates(seed: int, images: int, kind: str) -> Candidates:
    """Scores that are all different, all the same, mostly tied, or of both signs."""
    rng = np.random.default_rng(seed)
    scores = {
        "spread": rng.random(images),
        "constant": np.full(images, 0.5),
        "none": np.zeros(images),
        "tied": rng.integers(0, 3, images) / 2,
    }
    found = scores.get(kind, rng.normal(size=images))
    return Candidates(np.sort(rng.permutation(images * 3)[:images]), found, rng.integers(0, 4, images), found.min())


pools = st.builds(
    candidates,
    st.integers(0, 999),
    st.integers(1, 40),
    st.sampled_from(["spread", "constant", "none", "tied", "signed"]),
)


def picked(picker: Picker, pool: Candidates, budget: int, seed: int = 0) -> list[int]:
    return picked_from(picker, [pool], budget, seed)


def picked_from(picker: Picker, stretches: list[Candidates], budget: int, seed: int = 0) -> list[int]:
    best = picker.pick(stretches, budget, np.random.default_rng(seed))
    score_of = {int(i): score for each in stretches for i, score in zip(each.ids, each.scores, strict=True)}
    assert best.scores.tolist() == [score_of[i] for i in best.ids.tolist()]
    return [int(i) for i in best.ids]


@pytest.mark.parametrize("kind", members("pickers"))
def test_a_picker_is_named_like_its_file(kind: type[Picker]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_picker
@given(pool=pools, data=st.data())
def test_as_many_different_ids_of_the_pool_are_picked_as_are_asked_for(
    picker: Picker, pool: Candidates, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, len(pool.ids)))
    ids = picked(picker, pool, budget)
    assert len(ids) == len(set(ids)) == budget
    assert set(ids) <= set(pool.ids.tolist())


@each_picker
@given(pool=pools)
def test_one_image_or_all_of_them_can_be_asked_for(picker: Picker, pool: Candidates) -> None:
    everyone = picked(picker, pool, len(pool.ids))
    assert sorted(everyone) == sorted(pool.ids.tolist())
    assert picked(picker, pool, 1) == everyone[:1]


@each_picker
@given(pool=pools, data=st.data())
def test_neither_another_run_nor_another_cut_into_stretches_changes_the_query(
    picker: Picker, pool: Candidates, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, len(pool.ids)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pool.ids)), max_size=5)))
    rows = [slice(start, stop) for start, stop in pairwise([0, *cuts, len(pool.ids)]) if start < stop]
    pieces = [Candidates(pool.ids[some], pool.scores[some], pool.predicted[some], pool.least) for some in rows]
    assert picked(picker, pool, budget) == picked(picker, pool, budget) == picked_from(picker, pieces, budget)


@each_picker
@given(pool=pools)
def test_the_candidates_are_left_as_they_were(picker: Picker, pool: Candidates) -> None:
    arrays = (pool.ids, pool.scores, pool.predicted)
    before = [array.copy() for array in arrays]
    picked(picker, pool, 1)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


@each_picker
def test_higher_scores_are_picked_more_often(picker: Picker) -> None:
    pool = Candidates(np.arange(40), np.repeat([0.2, 2.0], 20), np.tile([0, 1], 20))
    drawn = [image for seed in range(50) for image in picked(picker, pool, 10, seed)]
    assert np.mean(np.array(drawn) >= 20) > 0.7


@each_picker
def test_a_score_that_is_not_a_number_is_refused(picker: Picker, workspace: Workspace) -> None:
    path = workspace.path("select", "scores", "c2")
    table = tables.read(path, tables.SCORES)
    ids, scores = table["id"].to_numpy(), table["score"].to_numpy().copy()
    scores[5] = np.nan
    tables.write(pa.table([ids, scores], schema=tables.SCORES), tables.SCORES, path)
    workspace.change(**{"select.pick": picker.model_dump()})
    with pytest.raises(DataError, match=rf"scores\.parquet: id {ids[5]} has no score \(NaN\)$"):
        workspace.run("select", "c2")
