"""What every strategy that chooses a whole query promises: so many different images of the pool, whatever the order of the rows."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from codline.acquisition.learner_context import LearnerContext
from codline.core.errors import CodlineError, DataError, UserError
from codline.strategies.base import Chooser, Known, Outputs, Whole
from tests.families import SMALL, as_parameter, variants


def small(chooser: Chooser) -> Chooser:
    fields = type(chooser).model_fields
    return chooser.model_copy(
        update={key: value for key, value in SMALL.items() if key in fields and "learning_rate" in fields}
    )


each_chooser = pytest.mark.parametrize(
    "strategy", [as_parameter(small(one)) for one in variants("strategies") if isinstance(one, Chooser)]
)
each_cycle = pytest.mark.parametrize("first_cycle", [True, False])


def whole_of(seed: int = 0, images: int = 30, classes: int = 4, first_cycle: bool = False, labeled: int = 6) -> Whole:
    rng = np.random.default_rng(seed)
    names = ("previous", "average", "independent", 100)
    ids = rng.permutation(3 * (images + labeled))[: images + labeled]
    outputs, *others = (said(rng.normal(size=(images, classes)) * 3) for _ in range(5))
    features = np.maximum(rng.normal(size=(images + labeled, 8)), 0).astype(np.float32)
    foretold = rng.normal(size=images + labeled).astype(np.float32)
    known = Known(
        ids[images:], rng.integers(0, classes, labeled).astype(np.int32), features[images:], foretold[images:]
    )
    return Whole(
        ids[:images],
        outputs,
        features[:images],
        known,
        bench(),
        dict(zip(names, others, strict=True)),
        first_cycle,
        foretold[:images],
    )


def bench() -> LearnerContext:
    """Images that follow from their ids."""

    def images(ids: np.ndarray) -> torch.Tensor:
        return torch.stack([torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(int(i))) for i in ids])

    return LearnerContext(images, torch.device("cpu"), 0, quiet)


def quiet(*_: int) -> None:
    """Progress that nobody watches."""


def said(logits: np.ndarray) -> Outputs:
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Outputs(logits.astype(np.float32), exponents / exponents.sum(axis=1, keepdims=True))


def chosen(strategy: Chooser, pool: Whole, budget: int = 7, seed: int = 0) -> list[int]:
    found = strategy.choose(pool, budget, np.random.default_rng(seed))
    assert len(found) == len(set(found.tolist())) == budget
    assert set(found.tolist()) <= set(pool.ids.tolist())
    return [int(i) for i in found]


def changed(pool: Whole, change: Callable[[np.ndarray], np.ndarray]) -> Whole:
    """All that the model says of the unlabelled images."""

    def of(outputs: Outputs) -> Outputs:
        return Outputs(change(outputs.logits_NC), change(outputs.probs_NC))

    others = {name: of(outputs) for name, outputs in pool.others.items()}
    assert pool.predicted is not None
    return replace(
        pool,
        outputs=of(pool.outputs),
        others=others,
        features_ND=change(pool.features_ND),
        predicted=change(pool.predicted),
    )


@each_chooser
@each_cycle
@pytest.mark.parametrize("budget", [1, 7, 30])
def test_a_query_is_of_different_images_up_to_the_whole_pool(strategy: Chooser, first_cycle: bool, budget: int) -> None:
    chosen(strategy, whole_of(first_cycle=first_cycle), budget)


@each_chooser
def test_nothing_needs_to_be_labelled_unless_it_is_learned_from(strategy: Chooser) -> None:
    with (
        contextlib.nullcontext()
        if not hasattr(strategy, "learning_rate")
        else pytest.raises(DataError, match="found no labelled image, expected one at least")
    ):
        chosen(strategy, whole_of(labeled=0))


@each_chooser
@each_cycle
def test_the_same_seed_gives_the_same_query_and_the_global_stream_is_left_alone(
    strategy: Chooser, first_cycle: bool
) -> None:
    pool, before = whole_of(1, first_cycle=first_cycle), torch.get_rng_state()
    first = chosen(strategy, pool)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert chosen(strategy, pool) == first


@each_chooser
@each_cycle
def test_the_order_of_the_rows_does_not_matter(strategy: Chooser, first_cycle: bool) -> None:
    pool = whole_of(2, first_cycle=first_cycle)
    order, labeled = np.random.default_rng(0).permutation(30), np.random.default_rng(0).permutation(6)
    assert pool.known.predicted is not None
    known = Known(
        *(array[labeled] for array in (pool.known.ids, pool.known.labels, pool.known.features_MD, pool.known.predicted))
    )
    shuffled = replace(changed(pool, lambda rows: rows[order]), ids=pool.ids[order], known=known)
    assert chosen(strategy, shuffled) == chosen(strategy, pool)


@each_chooser
@each_cycle
def test_images_that_look_all_alike_still_make_a_query(strategy: Chooser, first_cycle: bool) -> None:
    for value in (0.0, 0.5):
        pool = changed(whole_of(first_cycle=first_cycle), lambda rows, value=value: np.full_like(rows, value))
        pool = replace(
            pool,
            outputs=said(pool.outputs.logits_NC),
            others={name: said(outputs.logits_NC) for name, outputs in pool.others.items()},
        )
        known = replace(pool.known, features_MD=np.full_like(pool.known.features_MD, value))
        for budget in (1, 30):
            chosen(strategy, replace(pool, known=known), budget)


@each_chooser
@each_cycle
def test_one_class_is_enough(strategy: Chooser, first_cycle: bool) -> None:
    pool = whole_of(3, classes=1, first_cycle=first_cycle)
    chosen(strategy, replace(pool, known=replace(pool.known, labels=np.zeros(6, np.int32))))


@each_chooser
@each_cycle
def test_dense_outputs_make_a_query_unless_the_stage_refuses_them(strategy: Chooser, first_cycle: bool) -> None:
    def dense(outputs: Outputs) -> Outputs:
        return Outputs(
            *(
                np.repeat(array[:, :, None, None], 6, axis=2).reshape(30, 4, 2, 3)
                for array in (outputs.logits_NC, outputs.probs_NC)
            )
        )

    pool = whole_of(7, first_cycle=first_cycle)
    wide = replace(
        pool, outputs=dense(pool.outputs), others={name: dense(outputs) for name, outputs in pool.others.items()}
    )
    try:
        strategy.suited("segmentation")
    except UserError:
        return
    assert chosen(strategy, wide) == chosen(strategy, pool)


@each_chooser
def test_a_pool_of_one_image_is_the_query(strategy: Chooser) -> None:
    pool = whole_of(images=1, labeled=1)
    assert chosen(strategy, pool, 1) == pool.ids.tolist()


@each_chooser
@each_cycle
def test_what_a_strategy_needs_is_all_that_it_looks_at(strategy: Chooser, first_cycle: bool) -> None:
    whole = whole_of(4, first_cycle=first_cycle)
    needs = strategy.needs(first_cycle)
    bare = replace(whole, others={name: outputs for name, outputs in whole.others.items() if name in needs})
    assert chosen(strategy, bare) == chosen(strategy, whole)
    for name in needs:
        other = replace(bare, others={**bare.others, name: said(whole.others[name].logits_NC[::-1])})
        assert chosen(strategy, other) != chosen(strategy, bare)


@each_chooser
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["features", "outputs", "others", "predicted", "labelled features"])
def test_what_is_not_finite_is_refused_where_it_is_looked_at(strategy: Chooser, value: float, part: str) -> None:
    pool = whole_of(5)
    broken = {
        "features": pool.features_ND,
        "predicted": pool.predicted,
        "labelled features": pool.known.features_MD,
    }.get(part)
    outputs = pool.outputs if part == "outputs" else pool.others["previous"]
    before = chosen(strategy, pool)
    for array in (outputs.logits_NC, outputs.probs_NC) if broken is None else (broken,):
        array[3] = value
    image = pool.known.ids[3] if part == "labelled features" else pool.ids[3]
    assert answer(strategy, pool) in (before, f"of image {image}: found NaN or infinity, expected finite numbers")


def answer(strategy: Chooser, pool: Whole) -> list[int] | str:
    try:
        return chosen(strategy, pool)
    except CodlineError as error:
        return re.sub("^(features|outputs|foretold loss) ", "", str(error))


@each_chooser
@each_cycle
def test_the_pool_is_left_as_it_was(strategy: Chooser, first_cycle: bool) -> None:
    pool, same = (whole_of(6, first_cycle=first_cycle) for _ in range(2))
    chosen(strategy, pool)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays(pool), arrays(same), strict=True))


def arrays(pool: Whole) -> list[np.ndarray]:
    known = [pool.known.ids, pool.known.labels, pool.known.features_MD]
    said = [
        array for outputs in (pool.outputs, *pool.others.values()) for array in (outputs.logits_NC, outputs.probs_NC)
    ]
    return [pool.ids, pool.features_ND, *known, *said]
