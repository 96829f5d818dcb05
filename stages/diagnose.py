"""diagnose: how well this cycle's scores rank the unlabeled images by their true loss (simulated campaigns only)."""

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, image_store, tables
from codline.data.labels import lookup_labels, read_ids
from codline.data.output_store import open_output_store
from codline.data.random_streams import generator
from stages.runner import In, Out, run


class Params(Section):
    buckets: PositiveInt = 20  # of equal size, by descending score
    bootstrap: PositiveInt = 1000  # resamples for Spearman's interval
    gradients: NonNegativeInt = 100  # unlabeled images to measure output gradients of; unused for segmentation
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
    from codline.evaluation import diagnosis, rank_statistics
    from codline.learning import auxiliary_networks, gradient_norm, inference, model_file
    from codline.learning.compute import configure

    device = configure(compute)
    info = dataset_info.read_dataset_info(dataset)
    table = tables.read_table(scores, tables.SCORES)
    ids = table["id"].to_numpy()
    if not np.isin(ids, read_ids(oracle, tables.ORACLE)).all():  # labels come from people: the truth is unknown
        write_json(diagnostics, {"spearman": None})
        return

    current, previous = (open_output_store(path, info.output_shape) for path in (outputs, previous_outputs))
    labels = lookup_labels(ids, oracle, tables.ORACLE, len(info.classes))
    random_scores = generator(seed, "selection", cycle).random(len(ids))  # what `score` gives the strategy `random`
    statistics = diagnosis.image_statistics(
        ids, labels, current, previous, random_scores, classes=len(info.classes), chunk_size=params.batch_size
    )

    network, card = model_file.load_network(model, classes=len(info.classes), shape=info.shape)
    take, normalize = image_store.open_image_store(images).take, inference.Normalize(info.mean, info.std, device)
    norm, tod, snapshots = None, {}, auxiliary_networks.read_auxiliary(auxiliary)
    if info.task == "classification":
        drawn = generator(seed, "gradients", cycle).choice(ids, min(params.gradients, len(ids)), replace=False)
        norm = gradient_norm.mean_squared_norm(network.to(device), take, drawn, normalize)
    for steps in auxiliary_networks.snapshot_steps(snapshots):
        empty = card.spec.uninitialized_network(card.classes, card.shape)
        earlier = auxiliary_networks.load_auxiliary_network(empty, steps, snapshots).to(device)
        earlier_logits = inference.stream_logits(earlier, take, ids, normalize, params.batch_size, subsample=True)
        tod[str(steps)] = diagnosis.discrepancy_capture(statistics, current, earlier_logits)

    rng = generator(seed, "diagnose", cycle)
    ranking = rank_statistics.ranking_quality(
        table["score"].to_numpy(), statistics.losses, ids, rng, resamples=params.bootstrap, buckets=params.buckets
    )
    of_query = diagnosis.query_statistics(statistics, np.isin(ids, read_ids(query, tables.QUERY)))
    write_json(diagnostics, ranking | of_query | {"squared_gradient_norm": norm, "tod": tod})


if __name__ == "__main__":
    run(diagnose)
