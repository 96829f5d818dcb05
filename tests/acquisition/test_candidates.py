"""The rules by which candidates are kept."""

import numpy as np
import pytest

from codline.acquisition.candidates import Candidates
from codline.acquisition.discrepancy import discrepancy
from codline.strategies.base import Outputs, PoolChunk
from codline.strategies.entropy import Entropy
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.margin import Margin
from tests.pools import outputs_from_logits

IDS = np.arange(40)


def outputs(seed: int) -> Outputs:
    return outputs_from_logits(np.random.default_rng(seed).normal(size=(len(IDS), 4)).astype(np.float32))


def scores(by: str, rows: slice = slice(None), *, first_cycle: bool = False, key: int = 0) -> list[float]:
    now, before = (outputs(seed).probs_NC[rows] for seed in (0, 1))
    rule = Candidates.model_validate({"keep": 5, "by": by})
    values: list[float] = rule.scores(IDS[rows], now, before, first_cycle=first_cycle, key=key).tolist()
    return values


@pytest.mark.parametrize("strategy", [Margin(), Entropy(), LeastConfidence()])
def test_rule_scores_as_the_strategy_of_its_name(strategy: Margin | Entropy | LeastConfidence) -> None:
    expected = strategy.scores(PoolChunk(IDS, outputs(0)), np.random.default_rng(0))
    assert scores(strategy.name) == expected.tolist()


def test_cod_prefers_large_changes_and_in_the_first_cycle_small_ones() -> None:
    distances = discrepancy(outputs(0).probs_NC, outputs(1).probs_NC)
    assert scores("cod") == distances.tolist()
    assert scores("cod", first_cycle=True) == (-distances).tolist()


@pytest.mark.parametrize("by", ["random", "margin", "entropy", "least_confidence", "cod"])
def test_rule_scores_an_image_the_same_in_any_chunk(by: str) -> None:
    assert scores(by) == [*scores(by, slice(0, 7)), *scores(by, slice(7, 40))]


def test_random_rule_depends_on_the_key_and_not_on_the_outputs() -> None:
    assert len(set(scores("random"))) == len(IDS)
    assert scores("random", key=1) != scores("random")
