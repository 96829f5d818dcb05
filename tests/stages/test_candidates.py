"""score.candidates: the images that a strategy chooses among which selects whole queries."""

import json
from typing import Any

import numpy as np
import pytest

from codline.core.errors import UserError
from codline.data import tables
from codline.scoring import scorers
from codline.strategies.base import PoolFeatures
from codline.strategies.core_set import CoreSet
from stages.check_params import check
from tests.workspace import Workspace

BUDGET = 20


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[PoolFeatures]:
    """What core_set is given."""
    pools: list[PoolFeatures] = []

    def select_query(_: CoreSet, pool: PoolFeatures, budget: int, rng: np.random.Generator) -> np.ndarray:
        pools.append(pool)
        query: np.ndarray = original(CoreSet(), pool, budget, rng)
        return query

    original = CoreSet.select_query
    monkeypatch.setattr(CoreSet, "select_query", select_query)
    return pools


def score(workspace: Workspace, cycle: str = "c2", **changes: Any) -> dict[int, float]:
    workspace.change(**{f"score.{key}": value for key, value in changes.items()}, **{"select.budget": BUDGET})
    workspace.run("score", cycle)
    table = tables.read_table(workspace.path("score", "scores", cycle), tables.SCORES)
    return dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))


@pytest.mark.parametrize("cycle", ["c1", "c2"])
@pytest.mark.parametrize("by", ["margin", "entropy", "least_confidence", "cod"])
def test_candidates_are_the_images_that_the_strategy_of_the_rule_ranks_first(
    workspace: Workspace, seen: list[PoolFeatures], by: str, cycle: str
) -> None:
    ranked = score(workspace, cycle, strategy={"name": by})
    score(workspace, cycle, strategy={"name": "core_set"}, candidates={"keep": 50, "by": by})
    assert seen[0].ids.tolist() == sorted(sorted(ranked, key=lambda i: (-ranked[i], i))[:50])


def test_candidates_do_not_depend_on_the_batch_size(workspace: Workspace, seen: list[PoolFeatures]) -> None:
    for batch_size in (7, 512):
        for by in ("random", "margin"):
            score(workspace, strategy={"name": "core_set"}, candidates={"keep": 50, "by": by}, batch_size=batch_size)
    (random, margin), (other_random, other_margin) = (
        [pool.ids.tolist() for pool in pools] for pools in (seen[:2], seen[2:])
    )
    assert random == other_random != margin == other_margin


def test_other_images_keep_a_score_of_zero_and_stay_out_of_the_query(
    workspace: Workspace, seen: list[PoolFeatures]
) -> None:
    everything = score(workspace, strategy={"name": "core_set"})
    scores = score(workspace, candidates={"keep": 0.05, "by": "margin"})
    assert list(scores) == list(everything)
    candidates = seen[1].ids.tolist()
    assert BUDGET < len(candidates) < len(seen[0].ids) / 10
    assert sorted(scores.values(), reverse=True) == [*range(BUDGET, 0, -1), *[0] * (len(scores) - BUDGET)]
    assert {i for i, value in scores.items() if value} <= set(candidates)
    for stage in ("select", "diagnose"):
        workspace.run(stage, "c2")
    query = tables.read_table(workspace.path("select", "query", "c2"), tables.QUERY)["id"].to_pylist()
    assert query == sorted((i for i in scores if scores[i]), key=lambda i: -scores[i])
    diagnostics = json.loads(workspace.path("diagnose", "diagnostics", "c2").read_text())
    assert diagnostics["spearman"] is None
    assert diagnostics["loss_ratio"] > 0


def test_candidates_can_be_as_many_as_the_pool(workspace: Workspace) -> None:
    expected = score(workspace, strategy={"name": "core_set"})
    assert score(workspace, candidates={"keep": 1_000_000, "by": "cod"}) == expected


def test_candidates_by_cod_are_the_same_with_stored_and_recomputed_outputs(workspace: Workspace) -> None:
    candidates = {"keep": 50, "by": "cod"}
    stored = score(workspace, strategy={"name": "badge"}, candidates=candidates)
    assert score(workspace, previous="recomputed") == stored


def test_a_strategy_with_candidates_gets_the_reference_outputs_that_it_declares(
    workspace: Workspace, seen: list[PoolFeatures]
) -> None:
    score(workspace, strategy={"name": "core_set"}, candidates={"keep": 50, "by": "cod"})
    assert seen[0].references == {}


def test_memory_holds_the_candidates_and_a_quarter_more(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    class CountedRows(scorers.TopRows):
        def finish(self) -> Any:
            held.extend(len(values) for values in self.columns.values())
            return super().finish()

    monkeypatch.setattr(scorers, "TopRows", CountedRows)
    score(workspace, strategy={"name": "badge"}, candidates={"keep": 100, "by": "margin"})
    assert set(held) == {126}


@pytest.mark.parametrize(
    ("strategy", "candidates", "sentence"),
    [
        ("core_set", {"keep": 0}, "score.candidates.keep: found 0, expected a share of the pool"),
        ("core_set", {"keep": -3}, "score.candidates.keep: found -3, expected a share of the pool"),
        ("core_set", {"by": "margin"}, "score.candidates.keep: missing"),
        ("core_set", 20, "score.candidates: found 20, expected keys beneath it, such as keep"),
        ("core_set", {"keep": 19}, r"score.candidates.keep: found 19, expected at least select.budget \(20\)"),
        ("core_set", {"keep": 50, "by": "badge"}, "score.candidates.by: found 'badge', expected 'random', 'margin'"),
        ("margin", {"keep": 50}, "score.candidates: found .*, expected nothing: margin ranks all images"),
    ],
)
def test_candidates_are_refused(workspace: Workspace, strategy: str, candidates: Any, sentence: str) -> None:
    values = {"score.strategy": {"name": strategy}, "score.candidates": candidates, "select.budget": BUDGET}
    workspace.change(**values)
    with pytest.raises(UserError, match=rf"^params\.yaml: {sentence}"):
        check(workspace.root / "params.yaml")


def test_a_share_with_fewer_images_than_a_query_is_refused_before_the_pass(workspace: Workspace) -> None:
    before = {path: path.read_bytes() for path in workspace.outputs("score", "c2")}
    refusal = r"score\.candidates\.keep: found 1 images, expected at least those of a query \(20\)$"
    with pytest.raises(UserError, match=refusal):
        score(workspace, strategy={"name": "core_set"}, candidates={"keep": 0.001})
    assert {path: path.read_bytes() for path in workspace.outputs("score", "c2")} == before
