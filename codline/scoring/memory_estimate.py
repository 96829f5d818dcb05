"""Refuses a pool that a strategy cannot hold in memory, before hours are spent on a pass over it."""

import math

from codline.core.errors import UserError
from codline.core.params_errors import plugin_name
from codline.core.units import format_bytes
from codline.runtime.available_memory import available_memory
from codline.strategies.base import BatchStrategy, PoolSize

MIN_EXAMPLE = 1000  # candidates in the example of the sentence


def held_bytes(size: PoolSize, rows: int, models: int) -> int:
    """Of `rows` candidates: id, score, features, logits and probabilities of all models; and of the labeled images."""
    return rows * (20 + 4 * size.features + 12 * size.outputs * models) + 8 * size.labeled * size.features


def refuse_large_pool(strategy: BatchStrategy, size: PoolSize, rows: int, models: int) -> None:
    """`rows` are held during the pass; `size.images` of them are given to the strategy."""
    needed, available = held_bytes(size, rows, models) + strategy.working_bytes(size), available_memory()
    if available is None or needed <= available:
        return
    fitting = int(size.images * available / needed)
    example = fitting // 10 ** (digits := max(0, int(math.log10(max(1, fitting))))) * 10**digits
    pool = f"{size.images} images of {size.features} features and {size.outputs} outputs"
    found = f"found {plugin_name(type(strategy))!r}, which needs about {format_bytes(needed)} of memory for {pool}"
    if example < max(size.budget, MIN_EXAMPLE):
        expected = "expected more memory, or a strategy that ranks images one by one, such as margin"
    else:
        expected = f"expected a limit that fits, such as score.candidates={{keep: {example}, by: margin}}"
    raise UserError(
        f"params.yaml: score.strategy.name: {found}, but {format_bytes(available)} are available; {expected}"
    )
