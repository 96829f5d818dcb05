"""select: scores -> the query: the most wanted images, best first."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from codline.core import random_streams
from codline.core.errors import DataError, UserError
from codline.core.params import Amount, Section, amount
from codline.data import dataset_info, output_store, tables
from codline.pickers import AnyPicker
from codline.pickers.base import Candidates, predicted
from codline.pickers.top import Top
from stages.runner import In, Out, run


class Params(Section):
    budget: Amount  # a share counts from the whole pool, so that every cycle asks for as many
    pick: AnyPicker = Top()


def select(
    params: Params, *, seed: int, cycle: str, dataset: In, pool: In, outputs: In, scores: In, query: Out
) -> None:
    budget, count = amount(params.budget, tables.count(pool, tables.POOL)), tables.count(scores, tables.SCORES)
    if budget > count:
        raise UserError(
            f"params.yaml: select.budget: found {budget} images, but only {count} of the pool are unlabelled"
        )
    facts, picker = dataset_info.opened(dataset), params.pick
    if facts.task == "segmentation" and picker.looks_at_classes:
        raise UserError(
            f"params.yaml: select.pick.name: found {picker.name!r}, which is not defined for segmentation: an image has no one class"
        )
    said = output_store.opened(outputs, facts.outputs)  # reads nothing yet
    least = min((float(wanted.min()) for _, wanted in scored(scores)), default=0.0) if picker.looks_at_least else 0.0
    classes = partial(predicted, said.take) if picker.looks_at_classes else lambda _: np.empty(0, np.int64)
    stretches = (Candidates(ids, wanted, classes(ids), least) for ids, wanted in scored(scores))
    best = picker.pick(stretches, budget, random_streams.stream(seed, "picking", cycle))
    columns = [best.ids, np.arange(1, budget + 1, dtype=np.int32), best.scores]
    tables.write(pa.table(columns, schema=tables.QUERY), tables.QUERY, query)


def scored(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids and scores, stretch by stretch. score writes them in the order of the ids, so that draws follow from the ids alone."""
    last = -1
    for batch in tables.stretches(path, tables.SCORES):
        ids = batch["id"].to_numpy()
        if (np.diff(ids, prepend=last) <= 0).any():
            raise DataError(
                f"{path}: id {int(ids[np.diff(ids, prepend=last) <= 0][0])} comes after a larger one or twice, expected ids in their order"
            )
        last, wanted = ids[-1], batch["score"].to_numpy()
        if np.isnan(wanted).any():
            raise DataError(f"{path}: id {int(ids[np.isnan(wanted)][0])} has no score (NaN)")
        yield ids, wanted


if __name__ == "__main__":
    run(select)
