"""diagnose: outputs, scores and the hidden truth of a simulated campaign -> how well the score foretells the loss."""

from typing import Any

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt

from codline import (
    companions as companion_store,
    dataset as datasets,
    evidence,
    images as image_store,
    inference,
    outputs as output_store,
    seeding,
    tables,
    weights,
)
from codline.compute import configure
from codline.discrepancy import discrepancy
from codline.files import write_json
from codline.gradients import squared_norms
from codline.labels import ids_of, looked_up
from codline.params import Compute, Section
from stages._cli import In, Out, run


class Params(Section):
    buckets: PositiveInt = 20  # of equal size, by descending score
    bootstrap: PositiveInt = 1000  # resamples for Spearman's interval
    gradients: NonNegativeInt = 100  # images of the pool, drawn at random, whose output gradients are measured
    batch_size: PositiveInt = 512


def diagnose(
    params: Params,
    *,
    seed: int,
    compute: Compute,
    cycle: str,
    images: In,
    dataset: In,
    oracle: In,
    model: In,
    companions: In,
    outputs: In,
    previous: In,
    scores: In,
    query: In,
    diagnostics: Out,
) -> None:
    device = configure(compute)
    facts = datasets.opened(dataset)
    classes = len(facts.classes)
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    truth = looked_up(ids, oracle, tables.ORACLE)
    logits_NC, before = output_store.opened(outputs, classes).take(ids), output_store.opened(previous, classes)
    losses, probs_NC = output_store.losses(logits_NC, truth), output_store.softmax(logits_NC)
    kept = np.isin(ids, before.ids)
    moved = discrepancy(probs_NC[kept], output_store.softmax(before.take(ids[kept])))
    asked = np.isin(ids, ids_of(query, tables.QUERY))

    network, card = weights.load_network(model, classes=classes, shape=facts.shape)
    take, normalize = image_store.opened(images).take, inference.Normalize(facts.mean, facts.std, device)
    drawn = seeding.stream(seed, "gradients", cycle).choice(ids, min(params.gradients, len(ids)), replace=False)
    steepness = squared_norms(network.to(device), normalize(torch.from_numpy(take(drawn)).to(device))) if len(drawn) else torch.empty(0)

    def snapshot(steps: int) -> dict[str, Any]:
        """The capture curve of TOD over so many steps."""
        other = companion_store.filled(card.spec.initial(classes, facts.shape, 0), steps, beside).to(device)
        earlier = np.concatenate([logits for _, logits in inference.logits(other, take, ids, normalize, params.batch_size)])
        captured = evidence.capture(discrepancy(probs_NC, output_store.softmax(earlier)), losses, ids)
        return {"capture": captured.tolist(), "capture_gain": evidence.capture_gain(captured)}

    beside = companion_store.read(companions)
    rivals = evidence.rivals(probs_NC, seeding.stream(seed, "selection", cycle))  # random asks what it would have asked in score
    if kept.all() and before.metadata["cycle"] != "init":  # COD's rule for the first cycle is a matter of parameters
        rivals["cod"] = moved
    write_json(
        diagnostics,
        evidence.foretold(wanted, losses, ids, seeding.stream(seed, "diagnose", cycle), params.bootstrap, params.buckets)
        | {
            "mean_discrepancy": float(moved.mean()) if kept.any() else None,
            "mean_loss_of_query": float(losses[asked].mean()),
            "overlap": {name: evidence.overlap(ids[asked], ids[evidence.ranked(rival, ids)[: asked.sum()]]) for name, rival in rivals.items()},
            "classes_in_query": np.bincount(truth[asked], minlength=classes).tolist(),
            "squared_gradient_norm": float(steepness.double().mean()) if len(drawn) else None,
            "tod": {str(steps): snapshot(steps) for steps in companion_store.snapshots(beside)},
        },
    )


if __name__ == "__main__":
    run(diagnose)
