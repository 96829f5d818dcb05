"""prepare: a dataset -> the image store, the pool, the hidden truth, the first labels and the untrained model."""

import hashlib
import logging

import numpy as np
import pyarrow as pa

from codline import companions as companion_store, dataset as datasets, images as image_store, inference, outputs as output_store, seeding, tables, weights
from codline.compute import configure
from codline.datasets import AnyDataset
from codline.errors import UserError
from codline.files import write_json
from codline.models import AnyModel
from codline.params import Amount, Compute, Section, amount
from stages._cli import Out, run


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
    ids = np.arange(len(raw.images))
    pool_ids = ids[~raw.is_test]
    start = amount(params.start, len(pool_ids))
    if start > len(pool_ids):
        raise UserError(f"params.yaml: prepare.start: found {start}, but the pool has only {len(pool_ids)} images")
    if start < len(raw.classes):
        logging.warning("prepare.start: %d first labels for %d classes: some classes start without an example", start, len(raw.classes))
    first = np.sort(split.choice(pool_ids, start, replace=False))

    image_store.write(images, ids, raw.images)
    hashes = [hashlib.sha256(raw.images[i].tobytes()).hexdigest() for i in pool_ids]
    tables.write(pa.table([pool_ids, hashes], schema=tables.POOL), tables.POOL, pool)
    labels = raw.labels if isinstance(raw.labels, np.ndarray) else np.array(raw.labels, object)
    tables.write(tables.made([pool_ids, labels[pool_ids]], tables.ORACLE), tables.ORACLE, oracle)
    tables.write(tables.made([ids[raw.is_test], labels[raw.is_test]], tables.TEST), tables.TEST, test)
    tables.write(tables.made([first, labels[first], ["init"] * start], tables.LABELED), tables.LABELED, labeled)
    shape, classes = tuple(raw.images.shape[1:]), len(raw.classes)
    mean, std = raw.statistics()
    write_json(dataset, {"task": raw.task, "classes": raw.classes, "shape": shape, "mean": mean, "std": std})

    network = params.model.initial(classes, shape, seeding.derive(seed, "init")).to(device)
    weights.save_network(model, network, weights.Card(params.model.model_dump(), classes, shape, "init", 0))
    companion_store.write(companions, "init", {})
    normalize = inference.Normalize(mean, std, device)
    unlabeled = np.setdiff1d(pool_ids, first)
    passes = inference.all_logits([network], image_store.opened(images).take, unlabeled, normalize, 512 if raw.task == "classification" else 16, thin=True)
    for _ in output_store.write(outputs, datasets.opened(dataset).outputs, "init", passes):
        pass


if __name__ == "__main__":
    run(prepare)
