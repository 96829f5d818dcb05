"""score: this cycle's model, the last one's outputs -> outputs and a score for every unlabelled image."""

from functools import partial
from typing import Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt, model_validator

from codline import (
    companions as companion_store,
    dataset as datasets,
    images as image_store,
    inference,
    outputs as output_store,
    scoring,
    seeding,
    tables,
    weights,
)
from codline.augment import Augment
from codline.compute import configure
from codline.labels import unlabeled
from codline.params import Amount, Compute, Section
from codline.progress import bar
from codline.strategies import AnyStrategy
from stages._cli import In, Out, run


class Params(Section):
    strategy: AnyStrategy
    batch_size: PositiveInt
    subset: Amount | None = None  # of the unlabelled images, so many, drawn at random, can be asked for; all if left out
    previous: Literal["kept", "recomputed"] = "kept"  # the last cycle's outputs: from its file (dense: every eighth pixel), or by another pass
    augment: Augment | None = None  # a random view of each image, the same for both models

    @model_validator(mode="after")
    def one_view(self) -> Self:
        if self.augment is not None and self.previous == "kept":
            raise ValueError("previous: recomputed beside augment: both models must see the same view")
        return self


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
    companions: In,
    previous: In,
    earlier: In,
    outputs: Out,
    scores: Out,
) -> None:
    device = configure(compute)
    facts = datasets.opened(dataset)
    classes, shape = len(facts.classes), facts.shape
    network, card = weights.load_network(model, classes=classes, shape=shape)
    last, before = weights.load_network(earlier, classes=classes, shape=shape)
    kept = output_store.opened(previous, facts.outputs)
    first_cycle, recomputed = before.cycle == "init", params.previous == "recomputed"
    needs = params.strategy.needs(first_cycle)
    untrained = partial(card.spec.drawn, classes, shape, seeding.derive(seed, "independent"))
    others = scoring.networks(needs if recomputed else needs - {"previous"}, companion_store.read(companions), last, untrained)
    ids = unlabeled(pool, labeled)
    chosen = scoring.subset(ids, params.subset, seeding.stream(seed, "subset", cycle))
    passes = inference.all_logits(
        [each.to(device) for each in (network, *others.values())],
        image_store.opened(images).take,
        chosen if recomputed else ids,
        inference.Normalize(facts.mean, facts.std, device),
        params.batch_size,
        scoring.view(params.augment, seeding.derive(seed, "view", cycle)),
        thin=not recomputed,
    )
    seen = scoring.Seen(params.strategy, chosen, tuple(others), None if recomputed else kept, first_cycle)
    rng, found = seeding.stream(seed, "selection", cycle), [np.empty(0)]
    with bar(f"score@{cycle}", "images", len(chosen)) as advance:
        for chunk, logits in output_store.write(outputs, facts.outputs, cycle, passes):
            found.append(seen.scores(chunk, logits, rng))
            advance(sum(map(len, found)))
    tables.write(pa.table([chosen, np.concatenate(found)], schema=tables.SCORES), tables.SCORES, scores)


if __name__ == "__main__":
    run(score)
