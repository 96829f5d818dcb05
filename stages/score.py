"""score: this cycle's model, the last one's outputs -> outputs and a score for every unlabelled image."""

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from codline import dataset as datasets, images as image_store, inference, outputs as output_store, seeding, tables, weights
from codline.compute import configure
from codline.labels import unlabeled
from codline.params import Compute, Section
from codline.progress import bar
from codline.strategies import AnyStrategy
from codline.strategies.base import Pool
from stages._cli import In, Out, run


class Params(Section):
    strategy: AnyStrategy
    batch_size: PositiveInt


def score(
    params: Params,
    *,
    seed: int,
    compute: Compute,
    cycle: str,
    images: In,
    dataset: In,
    pool: In,
    labeled: In,
    model: In,
    previous: In,
    outputs: Out,
    scores: Out,
) -> None:
    device = configure(compute)
    facts = datasets.opened(dataset)
    classes = len(facts.classes)
    network, _ = weights.load_network(model, classes=classes, shape=facts.shape)
    before = output_store.opened(previous, classes)
    ids = unlabeled(pool, labeled)
    normalize = inference.Normalize(facts.mean, facts.std, device)
    rng = seeding.stream(seed, "selection", cycle)
    logits = inference.logits(network.to(device), image_store.opened(images).take, ids, normalize, params.batch_size)
    found, done = [np.empty(0)], 0
    with bar(f"score@{cycle}", "images", len(ids)) as advance:
        for chunk, logits_nC in output_store.write(outputs, classes, cycle, logits):
            stretch = Pool(chunk, output_store.softmax(logits_nC), output_store.softmax(before.take(chunk)), first_cycle=before.metadata["cycle"] == "init")
            found.append(params.strategy.scores(stretch, rng))
            done += len(chunk)
            advance(done)
    table = pa.table([ids, np.concatenate(found)], schema=tables.SCORES)
    tables.write(table, tables.SCORES, scores)


if __name__ == "__main__":
    run(score)
