"""prepare: a dataset -> the image store, the pool, the hidden truth, the first labels and the untrained model."""

import logging

import numpy as np
import pyarrow as pa

from codline import (
    companions as companion_store,
    dataset as datasets,
    images as image_store,
    inference,
    outputs as output_store,
    seeding,
    splits,
    tables,
    weights,
)
from codline.compute import configure
from codline.datasets import AnyDataset
from codline.datasets.base import duplicates
from codline.files import write_json
from codline.models import AnyModel
from codline.params import Compute, Section, Start
from codline.progress import bar
from stages._cli import Out, run

PIXELS = 2**22  # in a batch of the first pass, at most: 512 images of 90 pixels a side


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
    companions: Out,
    outputs: Out,
) -> None:
    device = configure(compute)
    rng = seeding.stream(seed, "split")
    params.model.suited(params.dataset.name, params.dataset.task)
    raw = params.dataset.load(rng)
    ids = splits.split(raw, params.start, rng)

    with bar("prepare", "images", len(ids.everyone)) as advance:
        stored = image_store.write(images, ids.everyone, raw.images, None if raw.mean else ~raw.is_test, advance)
    hashes = np.array(stored.hashes, object)  # references: numpy's own strings take four bytes a character
    if twice := duplicates(hashes[ids.pool], hashes[ids.test]):
        logging.warning("prepare.dataset: %d of %d test images are in the pool too, byte for byte", twice, len(ids.test))
    tables.write(pa.table([ids.pool, hashes[ids.pool]], schema=tables.POOL), tables.POOL, pool)
    tables.write(tables.made([ids.known, raw.cells[ids.known]], tables.ORACLE), tables.ORACLE, oracle)
    tables.write(tables.made([ids.test, raw.cells[ids.test]], tables.TEST), tables.TEST, test)
    tables.write(tables.made([ids.first, raw.cells[ids.first], ["init"] * len(ids.first)], tables.LABELED), tables.LABELED, labeled)
    shape, classes = image_store.shape_of(raw.images), len(raw.classes)
    mean, std = raw.statistics() if raw.mean else image_store.moments(stored.counts)
    write_json(dataset, {"task": params.dataset.task, "classes": raw.classes, "shape": shape, "mean": mean, "std": std})

    network = params.model.initial(classes, shape, seeding.derive(seed, "init")).to(device)
    weights.save_network(model, network, weights.Card(params.model.model_dump(), classes, shape, "init", 0))
    companion_store.write(companions, "init", {})
    normalize = inference.Normalize(mean, std, device)
    unlabeled = np.setdiff1d(ids.pool, ids.first)
    batch = max(8, min(512, PIXELS // (shape[1] * shape[2])))
    with output_store.writing(outputs, datasets.opened(dataset).outputs, "init") as keep:
        for some, logits in inference.logits(network, image_store.opened(images).take, unlabeled, normalize, batch, thin=True):
            keep(some, logits)


if __name__ == "__main__":
    run(prepare)
