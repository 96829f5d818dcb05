"""Inputs of strategies, made from random numbers or from a few given rows."""

from collections.abc import Sequence

import numpy as np
import torch

from codline.acquisition.learner_context import LearnerContext
from codline.scoring.scorers import outputs_from_logits
from codline.strategies.base import BatchStrategy, LabeledFeatures, Outputs, PoolFeatures

REFERENCES = ("previous", "average", "independent", 100)


def outputs_from_probs(probs: Sequence[Sequence[float]] | np.ndarray) -> Outputs:
    with np.errstate(divide="ignore"):
        return Outputs(np.log(probs), np.array(probs))


def make_learner_context() -> LearnerContext:
    """Images are random, but depend on nothing except their ids."""

    def images(ids: np.ndarray) -> torch.Tensor:
        return torch.stack([torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(int(i))) for i in ids])

    return LearnerContext(images, torch.device("cpu"), 0, advance=lambda _done, _total: None)


def make_pool(
    seed: int = 0,
    *,
    images: int = 30,
    labeled: int = 6,
    classes: int = 4,
    width: int = 8,
    first_cycle: bool = False,
) -> PoolFeatures:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(3 * (images + labeled))[: images + labeled]
    logits = [rng.normal(size=(images, classes)).astype(np.float32) * 3 for _ in range(1 + len(REFERENCES))]
    outputs, *references = (outputs_from_logits(each) for each in logits)
    features = np.maximum(rng.normal(size=(images + labeled, width)), 0).astype(np.float32)
    losses = rng.normal(size=images + labeled).astype(np.float32)
    labels = rng.integers(0, classes, labeled).astype(np.int32)
    return PoolFeatures(
        ids[:images],
        outputs,
        features[:images],
        LabeledFeatures(ids[images:], labels, features[images:], losses[images:]),
        make_learner_context(),
        references=dict(zip(REFERENCES, references, strict=True)),
        first_cycle=first_cycle,
        predicted_losses=losses[:images],
    )


def select_ids(strategy: BatchStrategy, pool: PoolFeatures, budget: int = 7, seed: int = 0) -> list[int]:
    query = strategy.select_query(pool, budget, np.random.default_rng(seed))
    assert len(query) == len(np.unique(query)) == budget
    assert np.isin(query, pool.ids).all()
    return [int(i) for i in query]
