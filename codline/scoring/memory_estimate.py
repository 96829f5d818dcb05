"""Refuses a pool that a strategy cannot hold in memory, before hours are spent on a pass over it."""

import math
from dataclasses import replace

from codline.core.errors import UserError
from codline.core.params_errors import plugin_name
from codline.core.units import format_bytes
from codline.runtime.available_memory import available_memory
from codline.scoring.top_rows import SPARE
from codline.strategies.base import BatchStrategy, PoolSize

MIN_EXAMPLE = 1000  # candidates in the example of the sentence


def needed_bytes(strategy: BatchStrategy, size: PoolSize, rows: int, models: int) -> float:
    """While `rows` candidates are held, of which `size.images` are given to the strategy.

    Held are id, score, features, and logits and probabilities of all models; of labeled images two copies of features.
    """
    held = rows * (20 + 4 * size.features + 12 * size.outputs * models) + 8 * size.labeled * size.features
    return held + strategy.working_bytes(size)


def refuse_large_pool(strategy: BatchStrategy, size: PoolSize, rows: int, models: int) -> None:
    needed, available = needed_bytes(strategy, size, rows, models), available_memory()
    if available is None or needed <= available:
        return
    without_pool = needed_bytes(strategy, replace(size, images=0), 0, models)
    fitting = size.images * (available - without_pool) / (needed - without_pool) / (1 + 1 / SPARE)
    pool = f"{size.images} images of {size.features} features and {size.outputs} outputs"
    found = f"found {plugin_name(type(strategy))!r}, which needs about {format_bytes(needed)} of memory for {pool}"
    if fitting < max(size.budget, MIN_EXAMPLE):
        expected = "expected more memory, or a strategy that ranks images one by one, such as margin"
    else:
        example = math.floor(fitting) // (digit := 10 ** int(math.log10(fitting))) * digit  # one digit and zeros
        keep = max(example, size.budget)
        expected = f"expected a limit that fits, such as score.candidates={{keep: {keep}, by: margin}}"
    raise UserError(
        f"params.yaml: score.strategy.name: {found}, but {format_bytes(available)} are available; {expected}"
    )
