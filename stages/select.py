"""select: scores -> the query: the most wanted images, best first."""

import numpy as np
import pyarrow as pa

from codline import dataset as datasets, outputs as output_store, seeding, tables
from codline.errors import DataError, UserError
from codline.params import Amount, Section, amount
from codline.pickers import AnyPicker
from codline.pickers.base import Candidates, predicted
from codline.pickers.top import Top
from stages._cli import In, Out, run


class Params(Section):
    budget: Amount  # a share counts from the whole pool, so that every cycle asks for as many
    pick: AnyPicker = Top()


def select(params: Params, *, seed: int, cycle: str, dataset: In, pool: In, outputs: In, scores: In, query: Out) -> None:
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    if np.isnan(wanted).any():
        raise DataError(f"{scores}: id {int(ids[np.isnan(wanted)][0])} has no score (NaN)")
    budget = amount(params.budget, tables.read(pool, tables.POOL).num_rows)
    if budget > len(ids):
        raise UserError(f"params.yaml: select.budget: found {budget} images, but only {len(ids)} of the pool are unlabelled")
    facts, picker = datasets.opened(dataset), params.pick
    if facts.task == "segmentation" and picker.looks_at_classes:
        raise UserError(f"params.yaml: select.pick.name: found {picker.name!r}, which is not defined for segmentation: an image has no one class")
    said = output_store.opened(outputs, facts.outputs)  # reads nothing yet
    candidates = Candidates(ids, wanted, predicted(said.take, ids)) if picker.looks_at_classes else Candidates(ids, wanted)
    chosen = picker.pick(candidates, budget, seeding.stream(seed, "picking", cycle))
    row_of = np.argsort(ids)
    rows = row_of[np.searchsorted(ids, chosen, sorter=row_of)]
    columns = [chosen, np.arange(1, budget + 1, dtype=np.int32), wanted[rows]]
    tables.write(pa.table(columns, schema=tables.QUERY), tables.QUERY, query)


if __name__ == "__main__":
    run(select)
