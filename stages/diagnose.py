"""diagnose: outputs, scores and the hidden truth of a simulated campaign -> how well the score foretells the loss."""

import numpy as np
from pydantic import PositiveInt

from codline import dataset as datasets, evidence, outputs as output_store, seeding, tables
from codline.discrepancy import discrepancy
from codline.files import write_json
from codline.labels import ids_of, looked_up
from codline.params import Section
from stages._cli import In, Out, run


class Params(Section):
    buckets: PositiveInt = 20  # of equal size, by descending score
    bootstrap: PositiveInt = 1000  # resamples for Spearman's interval


def diagnose(params: Params, *, seed: int, cycle: str, dataset: In, oracle: In, outputs: In, previous: In, scores: In, query: In, diagnostics: Out) -> None:
    classes = len(datasets.opened(dataset).classes)
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    truth = looked_up(ids, oracle, tables.ORACLE)
    logits_NC, before = output_store.opened(outputs, classes).take(ids), output_store.opened(previous, classes)
    losses, probs_NC = output_store.losses(logits_NC, truth), output_store.softmax(logits_NC)
    kept = np.isin(ids, before.ids)
    moved = discrepancy(probs_NC[kept], output_store.softmax(before.take(ids[kept])))
    asked = np.isin(ids, ids_of(query, tables.QUERY))

    rivals = evidence.rivals(probs_NC, seeding.stream(seed, "selection", cycle))  # random asks what it would have asked in score
    if kept.all() and before.metadata["cycle"] != "init":  # COD's rule for the first cycle is a matter of parameters
        rivals["cod"] = moved
    interval = evidence.spearman_interval(wanted, losses, seeding.stream(seed, "diagnose", cycle), params.bootstrap) or (None, None)
    captured = evidence.capture(wanted, losses, ids)
    write_json(
        diagnostics,
        {
            "spearman": evidence.spearman(wanted, losses),
            "spearman_low": interval[0],
            "spearman_high": interval[1],
            "mean_score": float(wanted.mean()),
            "mean_discrepancy": float(moved.mean()) if kept.any() else None,
            "mean_loss": float(losses.mean()),
            "mean_loss_of_query": float(losses[asked].mean()),
            "bucket_losses": evidence.bucket_losses(wanted, losses, ids, params.buckets).tolist(),
            "capture": captured.tolist(),
            "capture_gain": evidence.capture_gain(captured),
            "overlap": {name: evidence.overlap(ids[asked], ids[evidence.ranked(rival, ids)[: asked.sum()]]) for name, rival in rivals.items()},
            "classes_in_query": np.bincount(truth[asked], minlength=classes).tolist(),
        },
    )


if __name__ == "__main__":
    run(diagnose)
