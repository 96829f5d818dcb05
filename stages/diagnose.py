"""diagnose: how well this cycle's scores rank the unlabeled images by their true loss (simulated campaigns only)."""

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from codline.core.files import write_json
from codline.core.params import Compute, Section
from codline.data import dataset_info, tables
from codline.data.labels import lookup_labels, read_ids
from codline.data.output_store import open_output_store
from codline.data.random_streams import generator
from stages.runner import In, Out, run


class Params(Section):
    buckets: PositiveInt = 20  # of equal size, by descending score
    bootstrap: PositiveInt = 1000  # resamples for Spearman's interval
    gradients: NonNegativeInt = 100  # images to measure gradients at, half of them labeled; unused for segmentation
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
    labeled: In,
    model: In,
    auxiliary: In,
    outputs: In,
    previous_outputs: In,
    scores: In,
    query: In,
    diagnostics: Out,
) -> None:
    from codline.evaluation import diagnosis, network_diagnosis, rank_statistics
    from codline.learning.compute import configure
    from codline.learning.gradient_norm import GradientSample
    from codline.learning.image_reader import ImageReader

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

    reader, sample = ImageReader(images, info, compute, params.batch_size), None
    if info.task == "classification" and params.gradients:
        pools = {"labeled": read_ids(labeled, tables.LABELED), "unlabeled": ids}
        sample = GradientSample(pools, params.gradients, generator(seed, "gradients", cycle), reader.take)
    networks = network_diagnosis.networks_in_training(model, auxiliary, len(info.classes), info.shape, device)
    of_networks = network_diagnosis.diagnose_networks(networks, statistics, current, sample, reader)

    rng = generator(seed, "diagnose", cycle)
    ranking = rank_statistics.ranking_quality(
        table["score"].to_numpy() if tables.ranks_pool(scores) else None,
        statistics.losses, ids, rng, resamples=params.bootstrap, buckets=params.buckets,
    )  # fmt: skip
    of_query = diagnosis.query_statistics(statistics, np.isin(ids, read_ids(query, tables.QUERY)))
    write_json(diagnostics, ranking | of_query | of_networks)


if __name__ == "__main__":
    run(diagnose)
