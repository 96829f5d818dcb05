"""select: scores -> the query: the most wanted images, best first."""

import numpy as np
import pyarrow as pa

from codline import tables
from codline.errors import DataError, UserError
from codline.params import Amount, Section, amount
from stages._cli import In, Out, run


class Params(Section):
    budget: Amount  # a share counts from the whole pool, so that every cycle asks for as many


def select(params: Params, *, cycle: str, pool: In, scores: In, query: Out) -> None:
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    if np.isnan(wanted).any():
        raise DataError(f"{scores}: id {int(ids[np.isnan(wanted)][0])} has no score (NaN)")
    budget = amount(params.budget, tables.read(pool, tables.POOL).num_rows)
    if budget > len(ids):
        raise UserError(f"params.yaml: select.budget: found {budget} images, but only {len(ids)} of the pool are unlabelled")
    chosen = np.lexsort((ids, -wanted))[:budget]
    columns = [ids[chosen], np.arange(1, budget + 1, dtype=np.int32), wanted[chosen]]
    tables.write(pa.table(columns, schema=tables.QUERY), tables.QUERY, query)


if __name__ == "__main__":
    run(select)
