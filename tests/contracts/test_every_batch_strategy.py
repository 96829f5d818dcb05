"""Contract of strategies that select whole queries: distinct images of the pool, whatever the order of the rows."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from codline.core.errors import CodlineError, DataError, UserError
from codline.scoring.scorers import outputs_from_logits
from codline.strategies.base import BatchStrategy, LabeledFeatures, Outputs, PoolFeatures
from tests.families import SMALL_TRAINING, as_pytest_param, variants
from tests.pools import make_pool, select_ids


def shorten_training(strategy: BatchStrategy) -> BatchStrategy:
    fields = type(strategy).model_fields
    if "learning_rate" not in fields:
        return strategy
    return strategy.model_copy(update={key: value for key, value in SMALL_TRAINING.items() if key in fields})


each_strategy = pytest.mark.parametrize(
    "strategy",
    [as_pytest_param(shorten_training(one)) for one in variants("strategies") if isinstance(one, BatchStrategy)],
)
each_cycle = pytest.mark.parametrize("first_cycle", [True, False])


def change_outputs(pool: PoolFeatures, change: Callable[[Outputs], Outputs]) -> PoolFeatures:
    references = {name: change(outputs) for name, outputs in pool.references.items()}
    return replace(pool, outputs=change(pool.outputs), references=references)


def change_rows(pool: PoolFeatures, change: Callable[[np.ndarray], np.ndarray]) -> PoolFeatures:
    """Apply a function to every array of the unlabeled images, except their ids."""
    assert pool.predicted_losses is not None
    changed = change_outputs(pool, lambda outputs: Outputs(change(outputs.logits_NC), change(outputs.probs_NC)))
    return replace(changed, features_ND=change(pool.features_ND), predicted_losses=change(pool.predicted_losses))


@each_strategy
@each_cycle
@pytest.mark.parametrize("budget", [1, 7, 30])
def test_query_has_distinct_images_up_to_the_whole_pool(
    strategy: BatchStrategy, first_cycle: bool, budget: int
) -> None:
    select_ids(strategy, make_pool(first_cycle=first_cycle), budget)


@each_strategy
def test_query_needs_no_labels_unless_the_strategy_trains_on_them(strategy: BatchStrategy) -> None:
    learns = hasattr(strategy, "learning_rate")
    refusal = pytest.raises(DataError, match="found no labelled image, expected one at least")
    with refusal if learns else contextlib.nullcontext():
        select_ids(strategy, make_pool(labeled=0))


@each_strategy
@each_cycle
def test_query_depends_on_the_seed_and_not_on_torch_s_global_generator(
    strategy: BatchStrategy, first_cycle: bool
) -> None:
    pool, state = make_pool(1, first_cycle=first_cycle), torch.get_rng_state()
    query = select_ids(strategy, pool)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert select_ids(strategy, pool) == query


@each_strategy
@each_cycle
def test_query_does_not_depend_on_the_order_of_the_rows(strategy: BatchStrategy, first_cycle: bool) -> None:
    pool = make_pool(2, first_cycle=first_cycle)
    order, labeled_order = (np.random.default_rng(0).permutation(count) for count in (30, 6))
    assert pool.labeled.predicted_losses is not None
    labeled = LabeledFeatures(
        ids=pool.labeled.ids[labeled_order],
        labels=pool.labeled.labels[labeled_order],
        features_MD=pool.labeled.features_MD[labeled_order],
        predicted_losses=pool.labeled.predicted_losses[labeled_order],
    )
    shuffled = replace(change_rows(pool, lambda rows: rows[order]), ids=pool.ids[order], labeled=labeled)
    assert select_ids(strategy, shuffled) == select_ids(strategy, pool)


@each_strategy
@each_cycle
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_identical_images_still_make_a_query(strategy: BatchStrategy, first_cycle: bool, value: float) -> None:
    pool = change_rows(make_pool(first_cycle=first_cycle), lambda rows: np.full_like(rows, value))
    pool = change_outputs(pool, lambda outputs: outputs_from_logits(outputs.logits_NC))
    labeled = replace(pool.labeled, features_MD=np.full_like(pool.labeled.features_MD, value))
    for budget in (1, 30):
        select_ids(strategy, replace(pool, labeled=labeled), budget)


@each_strategy
@each_cycle
def test_one_class_is_enough(strategy: BatchStrategy, first_cycle: bool) -> None:
    pool = make_pool(3, classes=1, first_cycle=first_cycle)
    select_ids(strategy, replace(pool, labeled=replace(pool.labeled, labels=np.zeros(6, np.int32))))


@each_strategy
@each_cycle
def test_dense_outputs_make_a_query_unless_segmentation_is_refused(strategy: BatchStrategy, first_cycle: bool) -> None:
    def repeat_pixels(outputs: Outputs) -> Outputs:
        arrays = (outputs.logits_NC, outputs.probs_NC)
        return Outputs(*(np.repeat(array[:, :, None, None], 6, axis=2).reshape(30, 4, 2, 3) for array in arrays))

    try:
        strategy.check_task("segmentation")
    except UserError:
        return
    pool = make_pool(7, first_cycle=first_cycle)
    assert select_ids(strategy, change_outputs(pool, repeat_pixels)) == select_ids(strategy, pool)


@each_strategy
def test_batch_strategy_selects_the_only_image_of_a_pool(strategy: BatchStrategy) -> None:
    pool = make_pool(images=1, labeled=1)
    assert select_ids(strategy, pool, 1) == pool.ids.tolist()


@each_strategy
@each_cycle
def test_query_uses_the_declared_reference_models_and_no_others(strategy: BatchStrategy, first_cycle: bool) -> None:
    pool, names = make_pool(4, first_cycle=first_cycle), strategy.reference_models(first_cycle)
    declared = replace(pool, references={name: pool.references[name] for name in names})
    query = select_ids(strategy, pool)
    assert select_ids(strategy, declared) == query
    for name in names:
        reversed_outputs = outputs_from_logits(pool.references[name].logits_NC[::-1])
        assert select_ids(strategy, replace(pool, references={**declared.references, name: reversed_outputs})) != query


@each_strategy
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["features", "outputs", "references", "predicted losses", "labeled features"])
def test_values_that_are_not_finite_are_refused_or_not_used(strategy: BatchStrategy, value: float, part: str) -> None:
    pool = make_pool(5)
    before = select_ids(strategy, pool)
    arrays = {
        "features": [pool.features_ND],
        "outputs": [pool.outputs.logits_NC, pool.outputs.probs_NC],
        "references": [pool.references["previous"].logits_NC, pool.references["previous"].probs_NC],
        "predicted losses": [pool.predicted_losses],
        "labeled features": [pool.labeled.features_MD],
    }[part]
    for array in arrays:
        assert array is not None
        array[3] = value
    image = pool.labeled.ids[3] if part == "labeled features" else pool.ids[3]
    refusal = f"of image {image}: found NaN or infinity, expected finite numbers"
    assert query_or_error(strategy, pool) in (before, refusal)


def query_or_error(strategy: BatchStrategy, pool: PoolFeatures) -> list[int] | str:
    try:
        return select_ids(strategy, pool)
    except CodlineError as error:
        return re.sub("^(features|outputs|predicted loss) ", "", str(error))


@each_strategy
@each_cycle
def test_batch_strategy_does_not_modify_the_pool(strategy: BatchStrategy, first_cycle: bool) -> None:
    pool, copy = (make_pool(6, first_cycle=first_cycle) for _ in range(2))
    select_ids(strategy, pool)
    assert all(np.array_equal(array, other) for array, other in zip(arrays_of(pool), arrays_of(copy), strict=True))


def arrays_of(pool: PoolFeatures) -> list[np.ndarray]:
    outputs = [pool.outputs, *pool.references.values()]
    arrays = [array for each in outputs for array in (each.logits_NC, each.probs_NC)]
    return [pool.ids, pool.features_ND, pool.labeled.ids, pool.labeled.labels, pool.labeled.features_MD, *arrays]
