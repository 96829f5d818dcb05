"""diagnose: outputs, scores and the hidden truth of a simulated campaign -> how well the score foretells the loss."""

import numpy as np
from pydantic import PositiveInt
from scipy.stats import spearmanr

from codline import dataset as datasets, outputs as output_store, tables
from codline.files import write_json
from codline.labels import ids_of, looked_up
from codline.params import Section
from stages._cli import In, Out, run


class Params(Section):
    buckets: PositiveInt  # of equal size, by descending score


def diagnose(params: Params, *, cycle: str, dataset: In, oracle: In, outputs: In, scores: In, query: In, diagnostics: Out) -> None:
    classes = len(datasets.opened(dataset).classes)
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    truth = looked_up(ids, oracle, tables.ORACLE)
    losses = output_store.losses(output_store.opened(outputs, classes).take(ids), truth)
    order = np.lexsort((ids, -wanted))
    asked = np.isin(ids, ids_of(query, tables.QUERY))
    flat = wanted.min() == wanted.max() or losses.min() == losses.max()
    write_json(
        diagnostics,
        {
            "spearman": None if flat else float(spearmanr(wanted, losses).statistic),
            "mean_score": float(wanted.mean()),
            "mean_loss": float(losses.mean()),
            "mean_loss_of_query": float(losses[asked].mean()),
            "bucket_losses": [float(losses[rows].mean()) for rows in np.array_split(order, min(params.buckets, len(order)))],
            "classes_in_query": [int(n) for n in np.bincount(truth[asked], minlength=classes)],
        },
    )


if __name__ == "__main__":
    run(diagnose)
