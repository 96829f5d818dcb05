"""Scorers on outputs that no network computed."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codline.core.errors import CodlineError
from codline.learning.inference import BatchOutputs
from codline.scoring.context import ScoringContext
from codline.scoring.networks import ScoringNetworks
from codline.scoring.scorers import BatchSelectionScorer, Scorer
from codline.strategies.core_set import CoreSet
from codline.strategies.entropy import Entropy


def make_context(scored: list[int]) -> ScoringContext:
    networks = ScoringNetworks(Any, {}, None, first_cycle=False, image_shape=(1, 8, 8))
    return ScoringContext(networks, Any, np.array(scored), None, None, seed=0, cycle="c1")


def make_batch(ids: list[int], passes: Iterator[np.ndarray] | None = None) -> BatchOutputs:
    logits = np.array(ids, np.float32)[:, None] * [1.0, 0.0]
    return BatchOutputs(np.array(ids), [logits], features=logits, dropout_logits=passes or iter(()))


def test_scorer_scores_the_images_of_all_batches() -> None:
    scorer = Scorer(Entropy(), make_context([0, 3, 5]))
    parts = [*scorer.scores(make_batch(ids) for ids in ([0, 1], [2], [3, 4, 5]))]
    assert [part.tolist() for part, _ in parts] == [[0], [3, 5]]
    scores = np.concatenate([values for _, values in parts])
    assert scores[0] == pytest.approx(np.log(2))
    assert scores[0] > scores[1] > scores[2] > 0


def test_batch_selection_scorer_does_not_keep_the_tensors_of_its_batches() -> None:
    features = np.zeros(10)

    def passes(features: np.ndarray) -> Iterator[np.ndarray]:
        yield features

    scorer, alive = BatchSelectionScorer(CoreSet(), make_context([0, 1]), 1, Path()), weakref.ref(features)
    scorer.add(make_batch([0, 1], passes(features)))
    del features
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(("query", "distinct"), [([0, 0], 1), ([0], 1), ([0, 9], 2)])
def test_batch_selection_scorer_refuses_what_is_no_query(query: list[int], distinct: int) -> None:
    scorer = BatchSelectionScorer(CoreSet(), make_context([0, 1, 2]), 2, Path())
    with pytest.raises(CodlineError, match=rf"^the strategy chose {distinct} images, expected 2 different ones"):
        scorer.check_query(np.array(query), np.arange(3))
