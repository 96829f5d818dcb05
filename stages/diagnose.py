"""diagnose: outputs, scores and the hidden truth of a simulated campaign -> how well the score foretells the loss."""

from functools import partial

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.core import random_streams
from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, image_store, output_store, tables
from codline.data.labels import ids_of, looked_up
from codline.evaluation import diagnosis, rank_statistics
from codline.learning import auxiliary_networks, gradient_norm, inference, model_file
from codline.learning.compute import configure
from stages.runner import In, Out, run


class Params(Section):
    buckets: PositiveInt = 20  # of equal size, by descending score
    bootstrap: PositiveInt = 1000  # resamples for Spearman's interval
    gradients: NonNegativeInt = (
        100  # images of the pool, drawn at random, whose output gradients are measured; none of dense outputs
    )
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
    auxiliary: In,
    outputs: In,
    previous_outputs: In,
    scores: In,
    query: In,
    diagnostics: Out,
) -> None:
    device = configure(compute)
    facts, beside = dataset_info.opened(dataset), auxiliary_networks.read(auxiliary)
    table = tables.read(scores, tables.SCORES)
    ids, wanted = table["id"].to_numpy(), table["score"].to_numpy()
    if not np.isin(ids, ids_of(oracle, tables.ORACLE)).all():  # people are asked, because nobody knows
        write_json(diagnostics, {"spearman": None})
        return
    ours, before = (output_store.opened(path, facts.outputs) for path in (outputs, previous_outputs))
    seen = diagnosis.looked_back(
        ids, looked_up(ids, oracle, tables.ORACLE), ours, before, len(facts.classes), params.batch_size
    )
    seen.rivals["random"] = random_streams.stream(seed, "selection", cycle).random(
        len(ids)
    )  # what it would have asked in score
    if before.metadata["cycle"] != "init" and not np.isnan(seen.moved).any():
        seen.rivals["cod"] = seen.moved

    network, card = model_file.load_network(model, classes=len(facts.classes), shape=facts.shape)
    take, normalize = image_store.opened(images).take, inference.Normalize(facts.mean, facts.std, device)
    drawn = random_streams.stream(seed, "gradients", cycle).choice(ids, min(params.gradients, len(ids)), replace=False)
    steep = (
        gradient_norm.mean_squared_norm(network.to(device), take, drawn, normalize)
        if facts.task == "classification"
        else None
    )
    tod = {}
    for steps in auxiliary_networks.snapshots(beside):
        other = auxiliary_networks.filled(card.spec.hollow(card.classes, card.shape), steps, beside).to(device)
        passed = partial(inference.logits, other, take, normalize=normalize, batch_size=params.batch_size, thin=True)
        tod[str(steps)] = diagnosis.captured_by(passed, seen, ours)
    foretold = rank_statistics.foretold(
        wanted, seen.losses, ids, random_streams.stream(seed, "diagnose", cycle), params.bootstrap, params.buckets
    )
    asked = np.isin(ids, ids_of(query, tables.QUERY))
    write_json(diagnostics, foretold | diagnosis.of_query(seen, asked) | {"squared_gradient_norm": steep, "tod": tod})


if __name__ == "__main__":
    run(diagnose)
