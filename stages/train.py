"""train: labeled images (and unlabeled ones, without labels) -> the model of this cycle and its training curve."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from codline.core.params import Compute
from codline.data import dataset_info, tables
from codline.data.labels import read_labels, unlabeled_ids
from codline.data.random_streams import derive_seed
from codline.learning.recipe import Recipe as Params
from codline.objectives.base import TrainingContext
from codline.runtime.progress import progress_bar
from stages.runner import In, Out, run


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
) -> Callable[[], None]:
    from codline.learning import auxiliary_networks, model_file
    from codline.learning.checkpoints import Checkpoint
    from codline.learning.committee import train_committee
    from codline.learning.compute import configure
    from codline.learning.fit import TrainingData, TrainingState
    from codline.learning.inference import Normalize
    from codline.learning.training_processes import ImagesAtPath, open_fit

    device = configure(compute)
    info = dataset_info.read_dataset_info(dataset)
    for objective in params.objectives:
        objective.check_task(info.task)
    labeled_ids, labels = read_labels(labeled, tables.LABELED, len(info.classes))
    data = TrainingData(
        take=ImagesAtPath(images),
        labeled_ids=labeled_ids,
        labels=labels,
        unlabeled_ids=unlabeled_ids(pool, labeled),
        normalize=Normalize(info.mean, info.std, device),
        classes=len(info.classes),
    )
    network, card = model_file.load_network(previous_model, classes=len(info.classes), shape=info.shape)
    before = auxiliary_networks.read_auxiliary(previous_auxiliary)
    context = TrainingContext(
        image_shape=info.shape,
        previous_network=copy.deepcopy(network) if card.cycle != "init" else None,
        make_independent=partial(card.spec.seeded_network, card.classes, card.shape, derive_seed(seed, "independent")),
        previous_auxiliary=auxiliary_networks.objective_states(before),
    )
    if params.start_from == "fresh":
        network = card.spec.initial_network(card.classes, card.shape, derive_seed(seed, "init"))

    inputs = [dataset, pool, labeled, previous_model, previous_auxiliary]
    checkpoint = Checkpoint(inputs, params=params.model_dump(), seed=seed, cycle=cycle, compute=compute.model_dump())
    resume = checkpoint.read()
    epochs = (1 + params.committee) * params.epochs
    with (
        progress_bar(f"train@{cycle}", "epochs", epochs, params.processes) as advance,
        open_fit(params.processes, compute) as fit,
    ):

        def on_epoch(state: TrainingState) -> None:
            checkpoint.write_if_due(state, params.epochs)
            advance(state.epoch, curve=state.curve)

        if resume:
            advance(resume.epoch, curve=resume.curve)
        training_seed = derive_seed(seed, "training", cycle)
        final = fit(network, data, params, context, seed=training_seed, resume=resume, on_epoch=on_epoch)
        members = train_committee(
            fit, params, data, card, before, checkpoint, seed=seed, cycle=cycle,
            advance=lambda done: advance(done, curve=final.curve),
        )  # fmt: skip

    model_file.save_network(model, network, replace(card, cycle=cycle, labels=len(labels)))
    auxiliary_networks.write_auxiliary(auxiliary, cycle, final.tensors | members)
    tables.write_csv(pa.Table.from_pylist(final.curve, schema=tables.TRAINING), tables.TRAINING, training_curve)
    return checkpoint.discard


if __name__ == "__main__":
    run(train)
