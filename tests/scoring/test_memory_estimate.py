"""A pool that does not fit into memory is refused before the pass, in one sentence."""

import re

import pytest

from codline.core.errors import UserError
from codline.scoring import memory_estimate
from codline.strategies.base import PoolSize
from codline.strategies.core_gcn import CoreGcn
from codline.strategies.core_set import CoreSet
from codline.strategies.scikit_activeml import ScikitActiveml
from tests.workspace import Workspace

MILLION = PoolSize(images=1_000_000, labeled=1_000, features=512, outputs=10, budget=1_000)


def refusal(available: int | None, size: PoolSize, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(memory_estimate, "available_memory", lambda: available)
    try:
        memory_estimate.refuse_large_pool(CoreSet(), size, size.images, models=1)
    except UserError as error:
        return str(error)
    return ""


def test_refusal_names_what_is_needed_what_there_is_and_candidates_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # A million times: 20 bytes, features 4 x 512 held and 3 copies of them, logits and probabilities 12 x 10.
    assert refusal(4_000_000_000, MILLION, monkeypatch) == (
        "params.yaml: score.strategy.name: found 'core_set', which needs about 8.3 GB of memory for 1000000 images of "
        "512 features and 10 outputs, but 4.0 GB are available; "
        "expected a limit that fits, such as score.candidates={keep: 300000, by: margin}"
    )


@pytest.mark.parametrize("available", [9_000_000_000, None])
def test_pool_that_fits_is_accepted_and_one_of_which_nothing_is_known(
    available: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(available, MILLION, monkeypatch) == ""


def test_refusal_suggests_no_fewer_candidates_than_a_query_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal(5_000_000, MILLION, monkeypatch)
    assert found.endswith("expected more memory, or a strategy that ranks images one by one, such as margin")


def test_example_in_a_refusal_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    for available in (10**8, 3 * 10**9, 8 * 10**9):
        (keep,) = re.findall(r"keep: (\d+)", refusal(available, MILLION, monkeypatch))
        fitting = PoolSize(int(keep), MILLION.labeled, MILLION.features, MILLION.outputs, MILLION.budget)
        assert refusal(available, fitting, monkeypatch) == ""


def test_estimate_of_a_graph_network_follows_its_subset() -> None:
    assert CoreGcn(subset=None).working_bytes(MILLION) > 3 * CoreGcn().working_bytes(MILLION)


def test_estimate_of_strategies_that_compare_all_pairs_grows_with_their_number() -> None:
    assert ScikitActiveml(query="ProbCover").working_bytes(MILLION) > 8e12
    assert ScikitActiveml(query="CoreSet").working_bytes(MILLION) < 1e11


def test_score_refuses_before_the_pass_and_takes_the_suggested_candidates(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "MIN_EXAMPLE", 1)
    monkeypatch.setattr(memory_estimate, "available_memory", lambda: 600_000)
    workspace.change(**{"score.strategy": {"name": "core_set"}, "select.budget": 20})
    before = {path: path.read_bytes() for path in workspace.outputs("score", "c2")}
    with pytest.raises(UserError, match=r"found .core_set., which needs about .* MB of memory for") as caught:
        workspace.run("score", "c2")
    assert {path: path.read_bytes() for path in workspace.outputs("score", "c2")} == before
    (keep,) = re.findall(r"keep: (\d+), by: margin", str(caught.value))
    workspace.change(**{"score.candidates": {"keep": int(keep), "by": "margin"}})
    workspace.run("score", "c2")
