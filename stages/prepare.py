"""prepare: a dataset -> the image store, the pool, the hidden truth, the first labels and the untrained model."""

import logging

import numpy as np
import pyarrow as pa

from codline import companions as companion_store, dataset as datasets, images as image_store, inference, outputs as output_store, seeding, tables, weights
from codline.compute import configure
from codline.datasets import AnyDataset
from codline.datasets.base import duplicates
from codline.errors import UserError
from codline.files import write_json
from codline.models import AnyModel
from codline.params import Amount, Compute, Section, amount
from codline.progress import bar
from stages._cli import Out, run

PIXELS = 2**22  # in a batch of the first pass, at most: 512 images of 90 pixels a side


class Params(Section):
    dataset: AnyDataset
    start: Amount
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
    split = seeding.stream(seed, "split")
    raw = params.dataset.load(split)
    if params.model.task != raw.task:
        raise UserError(
            f"params.yaml: prepare.model.name: found {params.model.name!r}, a model for {params.model.task}; {params.dataset.name} is for {raw.task}"
        )
    ids = np.arange(len(raw.is_test))
    pool_ids = ids[~raw.is_test]
    known = ids[~raw.is_test & raw.known]
    start = amount(params.start, len(pool_ids))
    if start > len(known):
        raise UserError(
            f"params.yaml: prepare.start: found {start}, but the pool has only {len(known)} images{'' if len(known) == len(pool_ids) else ' with a label'}"
        )
    if unknown := len(pool_ids) - len(known):
        logging.warning("%d of %d images of the pool have no label: annotate.annotator={name: people, answers: answers.csv}", unknown, len(pool_ids))
    if start < len(raw.classes):
        logging.warning("prepare.start: %d first labels for %d classes: some classes start without an example", start, len(raw.classes))
    first = np.sort(split.choice(known, start, replace=False))

    with bar("prepare", "images", len(ids)) as advance:
        stored = image_store.write(images, ids, raw.images, None if raw.mean else ~raw.is_test, advance)
    hashes = np.array(stored.hashes)
    if twice := duplicates(hashes[pool_ids], hashes[raw.is_test]):
        logging.warning("prepare.dataset: %d of %d test images are in the pool too, byte for byte", twice, raw.is_test.sum())
    tables.write(pa.table([pool_ids, hashes[pool_ids]], schema=tables.POOL), tables.POOL, pool)
    tables.write(tables.made([known, raw.cells[known]], tables.ORACLE), tables.ORACLE, oracle)
    tables.write(tables.made([ids[raw.is_test], raw.cells[raw.is_test]], tables.TEST), tables.TEST, test)
    tables.write(tables.made([first, raw.cells[first], ["init"] * start], tables.LABELED), tables.LABELED, labeled)
    shape, classes = image_store.shape_of(raw.images), len(raw.classes)
    mean, std = raw.statistics() if raw.mean else image_store.moments(stored.counts)
    write_json(dataset, {"task": raw.task, "classes": raw.classes, "shape": shape, "mean": mean, "std": std})

    network = params.model.initial(classes, shape, seeding.derive(seed, "init")).to(device)
    weights.save_network(model, network, weights.Card(params.model.model_dump(), classes, shape, "init", 0))
    companion_store.write(companions, "init", {})
    normalize = inference.Normalize(mean, std, device)
    unlabeled = np.setdiff1d(pool_ids, first)
    batch = max(8, min(512, PIXELS // (shape[1] * shape[2])))
    passes = inference.all_logits([network], image_store.opened(images).take, unlabeled, normalize, batch, thin=True)
    for _ in output_store.write(outputs, datasets.opened(dataset).outputs, "init", passes):
        pass


if __name__ == "__main__":
    run(prepare)
