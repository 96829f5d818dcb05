"""Peak memory of strategies that select whole queries, relative to the estimate by which score refuses large pools.

Each runs on random features and outputs in its own process: python -m benchmarks.strategy_memory
"""

import stages  # noqa: F401  isort: skip (pins numpy's CPU code before numpy is imported)

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from benchmarks.harness import (
    Measurement,
    argument_parser,
    measure_process,
    process_status,
    report_each,
    run_in_subprocess,
)
from codline.acquisition.learner_context import LearnerContext
from codline.data.output_store import softmax
from codline.learning.inference import batch_slices
from codline.scoring.memory_estimate import needed_bytes
from codline.scoring.top_rows import TopRows
from codline.strategies import AnyStrategy
from codline.strategies.base import BatchStrategy, LabeledFeatures, Outputs, PoolFeatures, PoolSize

SIZE = PoolSize(images=0, labeled=1_000, features=512, outputs=10, budget=200)
MANY_CLASSES = replace(SIZE, outputs=1_000)
BATCH = 512
CASES: list[tuple[dict[str, Any], PoolSize]] = [
    ({"name": "core_set"}, SIZE),
    ({"name": "badge"}, SIZE),
    ({"name": "badge"}, MANY_CLASSES),
    ({"name": "cod_diverse"}, SIZE),
    ({"name": "cod_diverse", "form": "seeding"}, SIZE),
    ({"name": "typiclust", "n_init": 1}, SIZE),
    ({"name": "uncertain_gcn", "steps": 3}, SIZE),
    ({"name": "core_gcn", "steps": 3, "subset": None}, SIZE),
]
ALL_PAIRS: list[tuple[dict[str, Any], PoolSize]] = [
    ({"name": "prob_cover", "radius": 1.0}, replace(SIZE, features=4_096))
]


def make_strategy(parameters: dict[str, Any]) -> BatchStrategy:
    strategy = TypeAdapter(AnyStrategy).validate_python(parameters)
    assert isinstance(strategy, BatchStrategy)
    return strategy


def draw_outputs(rng: np.random.Generator, rows: int, size: PoolSize) -> Outputs:
    logits = rng.standard_normal((rows, size.outputs), np.float32)
    return Outputs(logits, softmax(logits))


def hold_pool(size: PoolSize) -> PoolFeatures:
    """A pool of random numbers, collected batch by batch as score does."""
    import torch

    rng, rows = np.random.default_rng(0), TopRows(size.images, size.images)
    for batch in batch_slices(size.images, BATCH):
        ids = np.arange(batch.start, batch.stop)
        features, now = rng.standard_normal((len(ids), size.features), np.float32), draw_outputs(rng, len(ids), size)
        columns = {"ids": ids, "features": features, "logits": now.logits_NC, "probs": now.probs_NC}
        rows.add(np.zeros(len(ids)), columns)
    held, labeled = rows.finish(), np.arange(size.images, size.images + size.labeled)
    outputs = Outputs(held["logits"], held["probs"])
    return PoolFeatures(
        held["ids"],
        outputs,
        held["features"],
        LabeledFeatures(labeled, labeled % 10, rng.standard_normal((size.labeled, size.features), np.float32)),
        LearnerContext(images=lambda _: None, device=torch.device("cpu"), seed=0, advance=lambda _done, _total: None),
        references={"previous": outputs},
    )


def select(parameters: dict[str, Any], size: PoolSize) -> None:
    make_strategy(parameters).select_query(hold_pool(size), size.budget, np.random.default_rng(0))


def added_memory(parameters: dict[str, Any], size: PoolSize) -> tuple[int, float]:
    """Peak bytes, in addition to those after the same on a small pool, and seconds."""
    select(parameters, replace(size, images=2 * size.budget, labeled=size.budget))
    before = process_status("RssAnon")
    measured = measure_process(select, parameters, size)
    return measured.peak_anonymous - before, measured.seconds


def measure_strategies(arguments: argparse.Namespace) -> Iterator[list[Measurement]]:
    for parameters, size in CASES[:2] if arguments.quick else CASES + ALL_PAIRS * arguments.large:
        rows, strategy = list[Measurement](), make_strategy(parameters)
        for images in [5_000] if arguments.quick else [10_000, 40_000] if size == SIZE else [2_500, 10_000]:
            pool = replace(size, images=images)
            estimate = needed_bytes(strategy, pool, images, models=1)
            peak, seconds = run_in_subprocess(added_memory, parameters, pool).answer
            case = ", ".join(str(value) for value in parameters.values())
            title = f"{images:,} images, {size.features} features, {size.outputs} outputs"
            rows.append(Measurement(case, title, seconds, peak / estimate, peak, f"estimate {estimate / 1e6:,.0f} MB"))
        yield rows


def main(argv: list[str] | None = None) -> None:
    parser = argument_parser(__doc__)
    large = "also prob_cover, whose time grows with all pairs of images: two minutes"
    parser.add_argument("--large", action="store_true", help=large)
    arguments = parser.parse_args(argv)
    title = "Batch strategies: elapsed seconds, peak memory relative to the estimate"
    report_each(title, measure_strategies(arguments), arguments.json)


if __name__ == "__main__":
    main()
