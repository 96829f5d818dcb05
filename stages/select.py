"""select: the query, which are the images with the best scores, best first."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from codline.core.errors import DataError, UserError
from codline.core.params import Amount, Section
from codline.data import tables
from codline.data.dataset_info import read_dataset_info
from codline.data.output_store import open_output_store
from codline.data.random_streams import generator
from codline.data.splits import resolve_amount
from codline.pickers import AnyPicker
from codline.pickers.base import CandidateChunk, predicted_classes
from codline.pickers.top import Top
from stages.runner import In, Out, run


class Params(Section):
    budget: Amount  # a share refers to the whole pool, so that all cycles select the same number of images
    pick: AnyPicker = Top()


def select(
    params: Params, *, seed: int, cycle: str, dataset: In, pool: In, outputs: In, scores: In, query: Out
) -> None:
    tables.refuse_empty(pool, pool_size := tables.count_rows(pool, tables.POOL))
    wanted, scored = resolve_amount(params.budget, pool_size), tables.count_rows(scores, tables.SCORES)
    if wanted > pool_size:
        raise UserError(f"params.yaml: select.budget: found {wanted} images, but the pool has only {pool_size}")
    if wanted > (budget := min(wanted, scored)):
        sentence = "select.budget: found %d images, but only %d are left to select from; the query has all of them"
        logging.getLogger("codline").warning(sentence, wanted, scored)
    info, picker = read_dataset_info(dataset), params.pick
    if info.task == "segmentation" and picker.needs_predicted_classes:
        found = f"params.yaml: select.pick.name: found {picker.name!r}"
        raise UserError(f"{found}, which is not defined for segmentation: an image has no one class")
    tables.count_rows(outputs, tables.outputs_schema(info.output_shape))  # refuses another table
    # Opening the outputs reads all their ids.
    logits = open_output_store(outputs, info.output_shape) if picker.needs_predicted_classes else None
    lowest = min((values.min() for _, values in read_scores(scores)), default=0.0) if picker.needs_lowest_score else 0.0

    def candidates() -> Iterator[CandidateChunk]:
        for ids, values in read_scores(scores):
            classes = np.empty(0, np.int64) if logits is None else predicted_classes(logits.take, ids)
            yield CandidateChunk(ids, values, classes, float(lowest))

    best = picker.pick(candidates(), budget, generator(seed, "picking", cycle))
    ranks = np.arange(1, budget + 1, dtype=np.int32)
    schema = tables.schema_of_scores(tables.QUERY, tables.ranks_pool(scores))
    tables.write_columns([best.ids, ranks, best.scores], schema, query)


def read_scores(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield chunks of (ids, scores). Pickers may draw a random number per image, which is why ids must ascend."""
    last = -1
    for chunk in tables.read_chunks(path, tables.SCORES):
        ids, scores = chunk["id"].to_numpy(), chunk["score"].to_numpy()
        if len(unordered := ids[np.diff(ids, prepend=last) <= 0]):
            found = f"{path}: id {unordered[0]} comes after a larger one or twice"
            raise DataError(f"{found}, expected ids in their order")
        last = ids[-1]
        yield ids, scores


if __name__ == "__main__":
    run(select)
