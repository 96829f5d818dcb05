"""What every strategy that scores promises: one finite score per image, whatever the stretches, the order of the classes or the neighbours."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core.params import tag
from codline.strategies.base import Chooser, Outputs, Pool, Strategy
from tests.families import as_parameter, variants

each_strategy = pytest.mark.parametrize(
    "strategy", [as_parameter(one) for one in variants("strategies") if not isinstance(one, Chooser)]
)


def pool_of(seed: int, images: int, classes: int, first_cycle: bool) -> Pool:
    """Probabilities from even to one-hot, as of models between untrained and sure of themselves."""
    rng = np.random.default_rng(seed)
    now, *before = (rng.normal(size=(images, classes)) * rng.choice([0, 1, 10, 1000], (images, 1)) for _ in range(7))
    others = dict(zip(("previous", "average", "independent", 100, 200, 300), before, strict=True))
    said_of = {name: said(logits) for name, logits in others.items()}
    foretold, truth = rng.normal(size=images).astype(np.float32), rng.integers(0, classes, images).astype(np.int32)
    return Pool(np.arange(images) * 3 + 1, said(now), said_of, first_cycle, predicted=foretold, truth=truth)


def said(logits: np.ndarray) -> Outputs:
    return Outputs(logits, softmax(logits))


def softmax(logits: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    probs: np.ndarray = exponents / exponents.sum(1, keepdims=True)
    return probs


def changed(pool: Pool, change: Callable[[np.ndarray], np.ndarray]) -> Pool:
    def of(outputs: Outputs) -> Outputs:
        return Outputs(change(outputs.logits_NC), change(outputs.probs_NC))

    return replace(pool, outputs=of(pool.outputs), others={name: of(outputs) for name, outputs in pool.others.items()})


def scores(strategy: Strategy, pool: Pool, seed: int = 0) -> np.ndarray:
    return strategy.scores(sampled(strategy, pool), np.random.default_rng(seed))


def sampled(strategy: Strategy, pool: Pool) -> Pool:
    """With the passes that the strategy asks for, from sober to overheated: what a pass says of an image follows from the image alone."""
    passes, _ = strategy.stochastic()
    return replace(pool, samples=(softmax(pool.outputs.logits_NC * heat) for heat in np.linspace(0.2, 1.8, passes)))


pools = st.builds(pool_of, st.integers(0, 999), st.integers(1, 40), st.integers(2, 12), st.booleans())


@pytest.mark.parametrize("kind", members("strategies"))
def test_a_strategy_is_named_like_its_file(kind: type[Strategy]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_strategy
@given(pool=pools)
def test_every_image_gets_one_finite_score(strategy: Strategy, pool: Pool) -> None:
    found = scores(strategy, pool)
    assert found.shape == pool.ids.shape
    assert found.dtype == np.float64
    assert np.isfinite(found).all()


@each_strategy
@pytest.mark.parametrize("first_cycle", [True, False])
def test_what_a_strategy_needs_is_all_that_it_looks_at(strategy: Strategy, first_cycle: bool) -> None:
    whole = pool_of(1, 9, 4, first_cycle)
    needs = strategy.needs(first_cycle)
    bare = replace(whole, others={name: outputs for name, outputs in whole.others.items() if name in needs})
    assert np.array_equal(scores(strategy, bare), scores(strategy, whole))
    for name in needs:
        other = replace(bare, others={**bare.others, name: said(whole.others[name].logits_NC[::-1])})
        assert not np.array_equal(scores(strategy, other), scores(strategy, bare))


def test_the_true_loss_alone_is_told_the_answers() -> None:
    assert [tag(kind) for kind in members("strategies") if kind.truth] == ["true_loss"]


@each_strategy
def test_only_who_says_so_looks_at_the_answers(strategy: Strategy) -> None:
    pool = pool_of(1, 9, 4, first_cycle=False)
    assert pool.truth is not None
    lied_to = replace(pool, truth=(pool.truth + 1) % 4)
    assert np.array_equal(scores(strategy, lied_to), scores(strategy, pool)) != strategy.truth


@each_strategy
@given(pool=pools)
def test_the_same_seed_gives_the_same_scores(strategy: Strategy, pool: Pool) -> None:
    assert np.array_equal(scores(strategy, pool), scores(strategy, pool))


@each_strategy
@given(pool=pools, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_scores_do_not_depend_on_the_stretches(strategy: Strategy, pool: Pool, cuts: list[int]) -> None:
    rng = np.random.default_rng(0)
    edges = [0, *sorted(min(cut, len(pool.ids)) for cut in cuts), len(pool.ids)]
    stretches = [slice(start, stop) for start, stop in pairwise(edges)]
    assert pool.predicted is not None
    assert pool.truth is not None
    cut = [
        replace(pool, ids=pool.ids[rows], predicted=pool.predicted[rows], truth=pool.truth[rows]) for rows in stretches
    ]
    pieces = [changed(piece, lambda array, rows=rows: array[rows]) for piece, rows in zip(cut, stretches, strict=True)]
    assert np.array_equal(
        np.concatenate([strategy.scores(sampled(strategy, piece), rng) for piece in pieces]), scores(strategy, pool)
    )


@each_strategy
@given(pool=pools, order=st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_classes(strategy: Strategy, pool: Pool, order: Random) -> None:
    shuffled = list(range(pool.probs_NC.shape[1]))
    order.shuffle(shuffled)
    renamed = replace(changed(pool, lambda probs: probs[:, shuffled]), truth=np.argsort(shuffled)[pool.truth])
    assert scores(strategy, renamed) == pytest.approx(scores(strategy, pool), abs=1e-12)


@each_strategy
@given(pool=pools)
def test_the_pool_is_left_as_it_was(strategy: Strategy, pool: Pool) -> None:
    arrays = [
        pool.ids,
        *(
            array
            for outputs in (pool.outputs, *pool.others.values())
            for array in (outputs.logits_NC, outputs.probs_NC)
        ),
    ]
    before = [array.copy() for array in arrays]
    scores(strategy, pool)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))
