"""train: labelled images (and the unlabelled ones, without labels) -> the model of this cycle and its training curve."""

import copy
from functools import partial

import pyarrow as pa

from codline.core import random_streams
from codline.core.params import Compute
from codline.data import dataset_info, image_store, tables
from codline.data.labels import unlabeled
from codline.learning import auxiliary_networks, checkpoints, inference, model_file
from codline.learning.compute import configure
from codline.learning.fit import Examples, Progress, Recipe, fit
from codline.objectives.base import Beside
from codline.runtime.progress import bar
from stages.runner import In, Out, run


class Params(Recipe):
    pass


def train(
    params: Params,
    *,
    seed: int,
    compute: Compute,
    cycle: str,
    images: In,
    dataset: In,
    pool: In,
    labeled: In,
    previous_model: In,
    previous_auxiliary: In,
    model: Out,
    auxiliary: Out,
    training_curve: Out,
) -> None:
    device = configure(compute)
    facts = dataset_info.opened(dataset)
    known = tables.read(labeled, tables.LABELED)
    examples = Examples(
        image_store.opened(images).take,
        known["id"].to_numpy(),
        known["label"].to_numpy(),
        unlabeled(pool, labeled),
        inference.Normalize(facts.mean, facts.std, device),
    )
    network, before = model_file.load_network(previous_model, classes=len(facts.classes), shape=facts.shape)
    beside = Beside(
        previous=copy.deepcopy(network) if before.cycle != "init" else None,
        independent=partial(
            before.spec.drawn, before.classes, before.shape, random_streams.derive(seed, "independent")
        ),
        kept=auxiliary_networks.of_objective(auxiliary_networks.read(previous_auxiliary)),
    )
    if params.start_from == "fresh":
        network = before.spec.initial(before.classes, before.shape, random_streams.derive(seed, "init"))
    saved = checkpoints.Checkpoint(
        [dataset, pool, labeled, previous_model, previous_auxiliary],
        params=params.model_dump(),
        seed=seed,
        cycle=cycle,
        compute=compute.model_dump(),
    )

    with bar(f"train@{cycle}", "epochs", params.epochs) as advance:

        def on_epoch(progress: Progress) -> None:
            saved.write(progress)
            advance(progress.epoch, curve=progress.curve)

        resume = saved.read()
        if resume:
            advance(resume.epoch, curve=resume.curve)
        done = fit(
            network,
            examples,
            params,
            seed=random_streams.derive(seed, "training", cycle),
            resume=resume,
            on_epoch=on_epoch,
            beside=beside,
        )

    model_file.save_network(
        model, network, model_file.Card(before.model, before.classes, before.shape, cycle, len(known))
    )
    auxiliary_networks.write(auxiliary, cycle, done.tensors)
    tables.write_csv(pa.Table.from_pylist(done.curve, schema=tables.TRAINING), tables.TRAINING, training_curve)
    saved.discard()


if __name__ == "__main__":
    run(train)
