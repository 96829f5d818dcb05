"""prepare: a dataset -> the image store, the pool, the hidden truth, the first labels and the untrained model."""

import logging

import numpy as np
import pyarrow as pa

from codline.core import random_streams
from codline.core.files import write_json
from codline.core.params import Compute, Section, Start
from codline.data import dataset_info, image_store, output_store, splits, tables
from codline.datasets import AnyDataset
from codline.datasets.base import duplicates
from codline.learning import auxiliary_networks, inference, model_file
from codline.learning.compute import configure
from codline.models import AnyModel
from codline.runtime.progress import bar
from stages.runner import Out, run

PIXELS = (
    2**16
)  # in a batch of the first pass, at most: more is no quicker on a CPU, and would take as much memory as all the rest
ROWS = 2**14  # of the pool's table, written together


class Params(Section):
    dataset: AnyDataset
    start: Start
    model: AnyModel


def prepare(
    params: Params,
    *,
    seed: int,
    compute: Compute,
    images: Out,
    dataset: Out,
    pool: Out,
    oracle: Out,
    test: Out,
    labeled: Out,
    model: Out,
    auxiliary: Out,
    outputs: Out,
) -> None:
    device = configure(compute)
    params.model.suited(params.dataset.name, params.dataset.task)
    unlabeled = ingest(params, random_streams.stream(seed, "split"), images, dataset, pool, oracle, test, labeled)
    data = dataset_info.opened(dataset)
    network = params.model.initial(len(data.classes), data.shape, random_streams.derive(seed, "init")).to(device)
    model_file.save_network(
        model, network, model_file.Card(params.model.model_dump(), len(data.classes), data.shape, "init", 0)
    )
    auxiliary_networks.write(auxiliary, "init", {})
    normalize = inference.Normalize(data.mean, data.std, device)
    batch = max(8, min(512, PIXELS // (data.shape[1] * data.shape[2])))
    with output_store.writing(outputs, data.outputs, "init") as keep:
        for some, logits in inference.logits(
            network, image_store.opened(images).take, unlabeled, normalize, batch, thin=True
        ):
            keep(some, logits)


def ingest(
    params: Params, rng: np.random.Generator, images: Out, dataset: Out, pool: Out, oracle: Out, test: Out, labeled: Out
) -> np.ndarray:
    """Everything of the dataset, into its files; of the pool, which images have no label yet. What it holds is gone before a network looks at them."""
    raw = params.dataset.load(rng)
    ids = splits.split(raw, params.start, rng)
    with bar("prepare", "images", len(ids.everyone)) as advance:
        stored = image_store.write(images, ids.everyone, raw.images, None if raw.mean else ~raw.is_test, advance)
    if twice := duplicates((stored.hashes[row] for row in ids.pool), stored.hashes[ids.test].tolist()):
        logging.warning(
            "prepare.dataset: %d of %d test images are in the pool too, byte for byte", twice, len(ids.test)
        )
    parts = (ids.pool[start : start + ROWS] for start in range(0, len(ids.pool), ROWS))
    named = (pa.table([part, pa.array(stored.hashes[part]).cast(pa.string())], schema=tables.POOL) for part in parts)
    tables.write_parts(named, tables.POOL, pool)
    tables.write(tables.made([ids.known, raw.cells[ids.known]], tables.ORACLE), tables.ORACLE, oracle)
    tables.write(tables.made([ids.test, raw.cells[ids.test]], tables.TEST), tables.TEST, test)
    tables.write(
        tables.made([ids.first, raw.cells[ids.first], ["init"] * len(ids.first)], tables.LABELED),
        tables.LABELED,
        labeled,
    )
    shape = image_store.shape_of(raw.images)
    mean, std = raw.statistics() if raw.mean else image_store.moments(stored.counts)
    write_json(dataset, {"task": params.dataset.task, "classes": raw.classes, "shape": shape, "mean": mean, "std": std})
    return np.setdiff1d(ids.pool, ids.first)


if __name__ == "__main__":
    run(prepare)
