"""Contract of strategies that score: one finite score per image, whatever the chunks or the order of the classes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.cli.plugins import members
from codline.core.params_errors import plugin_name
from codline.data.output_store import softmax
from codline.scoring.scorers import outputs_from_logits
from codline.strategies.base import BatchStrategy, Outputs, PoolChunk, Strategy
from tests.families import as_pytest_param, variants

REFERENCES = ("previous", "average", "independent", 100, 200, 300, "member.1", "member.2")
each_strategy = pytest.mark.parametrize(
    "strategy", [as_pytest_param(one) for one in variants("strategies") if not isinstance(one, BatchStrategy)]
)


def make_chunk(seed: int, images: int, classes: int, first_cycle: bool) -> PoolChunk:
    """Probabilities range from uniform, as of an untrained model, to one-hot."""
    rng = np.random.default_rng(seed)
    shape, scales = (images, classes), [0, 1, 10, 1000]
    logits = [rng.normal(size=shape) * rng.choice(scales, (images, 1)) for _ in range(1 + len(REFERENCES))]
    outputs, *references = (outputs_from_logits(each) for each in logits)
    return PoolChunk(
        np.arange(images) * 3 + 1,
        outputs,
        dict(zip(REFERENCES, references, strict=True)),
        first_cycle=first_cycle,
        predicted_losses=rng.normal(size=images).astype(np.float32),
        true_labels=rng.integers(0, classes, images).astype(np.int32),
    )


def change_outputs(chunk: PoolChunk, change: Callable[[np.ndarray], np.ndarray]) -> PoolChunk:
    def changed(outputs: Outputs) -> Outputs:
        return Outputs(change(outputs.logits_NC), change(outputs.probs_NC))

    references = {name: changed(outputs) for name, outputs in chunk.references.items()}
    return replace(chunk, outputs=changed(chunk.outputs), references=references)


def select_rows(chunk: PoolChunk, rows: slice) -> PoolChunk:
    assert chunk.predicted_losses is not None
    assert chunk.true_labels is not None
    return replace(
        change_outputs(chunk, lambda array: array[rows]),
        ids=chunk.ids[rows],
        predicted_losses=chunk.predicted_losses[rows],
        true_labels=chunk.true_labels[rows],
    )


def with_dropout_passes(strategy: Strategy, chunk: PoolChunk) -> PoolChunk:
    """Passes with temperatures from low to high, so that a pass depends on each image alone."""
    passes, _ = strategy.dropout_passes()
    scales = np.linspace(0.2, 1.8, passes)
    return replace(chunk, dropout_probs=(softmax(chunk.outputs.logits_NC * scale) for scale in scales))


def scores(strategy: Strategy, chunk: PoolChunk) -> np.ndarray:
    return strategy.scores(with_dropout_passes(strategy, chunk), np.random.default_rng(0))


chunks = st.builds(make_chunk, st.integers(0, 999), st.integers(1, 40), st.integers(2, 12), st.booleans())


@pytest.mark.parametrize("kind", members("strategies"))
def test_name_is_that_of_the_module(kind: type[Strategy]) -> None:
    assert kind.model_fields["name"].default == kind.__module__.rpartition(".")[2]


@each_strategy
@given(chunk=chunks)
def test_scores_are_one_finite_number_per_image(strategy: Strategy, chunk: PoolChunk) -> None:
    found = scores(strategy, chunk)
    assert found.shape == chunk.ids.shape
    assert found.dtype == np.float64
    assert np.isfinite(found).all()


@each_strategy
@pytest.mark.parametrize("first_cycle", [True, False])
def test_scores_use_the_declared_reference_models_and_no_others(strategy: Strategy, first_cycle: bool) -> None:
    chunk, names = make_chunk(1, 9, 4, first_cycle), strategy.reference_models(first_cycle)
    declared = replace(chunk, references={name: chunk.references[name] for name in names})
    expected = scores(strategy, chunk)
    assert np.array_equal(scores(strategy, declared), expected)
    for name in names:
        reversed_outputs = outputs_from_logits(chunk.references[name].logits_NC[::-1])
        other = replace(chunk, references={**declared.references, name: reversed_outputs})
        assert not np.array_equal(scores(strategy, other), expected)


def test_true_loss_is_the_only_strategy_that_declares_true_labels() -> None:
    assert [plugin_name(kind) for kind in members("strategies") if kind.uses_true_labels] == ["true_loss"]


@each_strategy
def test_scores_depend_on_true_labels_only_where_declared(strategy: Strategy) -> None:
    chunk = make_chunk(1, 9, 4, first_cycle=False)
    assert chunk.true_labels is not None
    mislabeled = replace(chunk, true_labels=(chunk.true_labels + 1) % 4)
    assert np.array_equal(scores(strategy, mislabeled), scores(strategy, chunk)) != strategy.uses_true_labels


@each_strategy
@given(chunk=chunks)
def test_scores_repeat_with_the_same_seed(strategy: Strategy, chunk: PoolChunk) -> None:
    assert np.array_equal(scores(strategy, chunk), scores(strategy, chunk))


@each_strategy
@given(chunk=chunks, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_scores_do_not_depend_on_how_the_pool_is_chunked(strategy: Strategy, chunk: PoolChunk, cuts: list[int]) -> None:
    rng, count = np.random.default_rng(0), len(chunk.ids)
    edges = [0, *sorted(min(cut, count) for cut in cuts), count]
    parts = [select_rows(chunk, slice(start, stop)) for start, stop in pairwise(edges)]
    by_parts = [strategy.scores(with_dropout_passes(strategy, part), rng) for part in parts]
    assert np.array_equal(np.concatenate(by_parts), scores(strategy, chunk))


@each_strategy
@given(chunk=chunks, order=st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_classes(strategy: Strategy, chunk: PoolChunk, order: Random) -> None:
    classes = list(range(chunk.probs_NC.shape[1]))
    order.shuffle(classes)
    permuted = change_outputs(chunk, lambda array: array[:, classes])
    permuted = replace(permuted, true_labels=np.argsort(classes)[chunk.true_labels])
    assert scores(strategy, permuted) == pytest.approx(scores(strategy, chunk), abs=1e-12)


@each_strategy
@given(chunk=chunks)
def test_strategy_does_not_modify_the_chunk(strategy: Strategy, chunk: PoolChunk) -> None:
    outputs = [chunk.outputs, *chunk.references.values()]
    arrays = [chunk.ids, *(array for each in outputs for array in (each.logits_NC, each.probs_NC))]
    copies = [array.copy() for array in arrays]
    scores(strategy, chunk)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))
